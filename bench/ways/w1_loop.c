/* W1 by hand: four streams on one key, ROWS or RANGE windows; row ids out, or the key and all values.

   The algorithm is that of w1_loop in loop_kernels.py: a table of newest sequence numbers by bucket and stream, and
   chains of older ones in rings, which end where the window does. */

#include <stdint.h>

typedef struct {
    int32_t *heads;     /* [4 << bits], four of a bucket side by side; -1 = none */
    int32_t *link;      /* [4][ring], the next older tuple of the bucket */
    int64_t *held;      /* [4][ring], keys */
    int64_t *times;     /* [4][ring], event times; RANGE only */
    int64_t *nxt;       /* [4], sequence number of the next arrival */
    int32_t *ids;       /* [4][room], row ids of the results, if no payload is moved */
    int64_t *pairs;     /* [4][ring][2], key and value side by side, if payload is moved */
    int64_t *out;       /* [5][room], key and four values of the results, if payload is moved */
    int64_t mask;       /* ring - 1 */
    int64_t ring;
    int64_t room;
    int64_t bits;
} tables;

static inline int64_t low_mark(int64_t nxt, int64_t rows)
{
    return nxt > rows ? nxt - rows : 0;
}

static inline int64_t join(const uint8_t *order, const int64_t *keys, const int64_t *times, const int64_t *values,
                           int64_t arrivals, int64_t width, int range, int payload, tables *kept)
{
    static const uint8_t others[4][3] = {{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}};
    int32_t *restrict heads = kept->heads;
    int32_t *restrict link = kept->link;
    int64_t *restrict held = kept->held;
    int64_t *restrict nxt = kept->nxt;
    int64_t *restrict held_times = kept->times;
    int64_t *restrict pairs = kept->pairs;
    int64_t *restrict out = kept->out;
    const int64_t mask = kept->mask, ring = kept->ring, room = kept->room;
    const int shift = 64 - (int)kept->bits;
    int64_t n = 0;
    for (int64_t a = 0; a < arrivals; a++) {
        const int64_t i = order[a], key = keys[a];
        const int64_t row = (int64_t)(((uint64_t)key * UINT64_C(0x9E3779B97F4A7C15)) >> shift) * 4;
        const int64_t x = others[i][0], y = others[i][1], z = others[i][2];
        /* RANGE: a chain ends at the first tuple that is too old, or whose slot has been taken by another. */
        const int64_t rows = range ? ring : width, oldest = range ? times[a] - width : 0;
        const int64_t low_x = low_mark(nxt[x], rows), low_y = low_mark(nxt[y], rows), low_z = low_mark(nxt[z], rows);
        for (int64_t s0 = heads[row + x]; s0 >= low_x; s0 = link[x * ring + (s0 & mask)]) {
            if (range && held_times[x * ring + (s0 & mask)] < oldest)
                break;
            if ((payload ? pairs[2 * (x * ring + (s0 & mask))] : held[x * ring + (s0 & mask)]) != key)
                continue;
            for (int64_t s1 = heads[row + y]; s1 >= low_y; s1 = link[y * ring + (s1 & mask)]) {
                if (range && held_times[y * ring + (s1 & mask)] < oldest)
                    break;
                if ((payload ? pairs[2 * (y * ring + (s1 & mask))] : held[y * ring + (s1 & mask)]) != key)
                    continue;
                for (int64_t s2 = heads[row + z]; s2 >= low_z; s2 = link[z * ring + (s2 & mask)]) {
                    if (range && held_times[z * ring + (s2 & mask)] < oldest)
                        break;
                    if ((payload ? pairs[2 * (z * ring + (s2 & mask))] : held[z * ring + (s2 & mask)]) != key)
                        continue;
                    if (payload) {
                        out[n] = key;
                        out[(i + 1) * room + n] = values[a];
                        out[(x + 1) * room + n] = pairs[2 * (x * ring + (s0 & mask)) + 1];
                        out[(y + 1) * room + n] = pairs[2 * (y * ring + (s1 & mask)) + 1];
                        out[(z + 1) * room + n] = pairs[2 * (z * ring + (s2 & mask)) + 1];
                    } else {
                        kept->ids[i * room + n] = (int32_t)nxt[i];
                        kept->ids[x * room + n] = (int32_t)s0;
                        kept->ids[y * room + n] = (int32_t)s1;
                        kept->ids[z * room + n] = (int32_t)s2;
                    }
                    n++;
                }
            }
        }
        const int64_t s = nxt[i];
        if (payload) {
            pairs[2 * (i * ring + (s & mask))] = key;
            pairs[2 * (i * ring + (s & mask)) + 1] = values[a];
        } else {
            held[i * ring + (s & mask)] = key;
        }
        if (range)
            held_times[i * ring + (s & mask)] = times[a];
        link[i * ring + (s & mask)] = heads[row + i];
        heads[row + i] = (int32_t)s;
        nxt[i] = s + 1;
    }
    return n;
}

/* Arrivals in order: order[n], keys[n]; times[n] for RANGE windows, else NULL; values[n] to move payload, else NULL.
   Return the number of results. */

int64_t w1(const uint8_t *order, const int64_t *keys, const int64_t *times, const int64_t *values, int64_t arrivals,
           int64_t width, tables *kept)
{
    if (times)
        return values ? join(order, keys, times, values, arrivals, width, 1, 1, kept)
                      : join(order, keys, times, values, arrivals, width, 1, 0, kept);
    return values ? join(order, keys, times, values, arrivals, width, 0, 1, kept)
                  : join(order, keys, times, values, arrivals, width, 0, 0, kept);
}
