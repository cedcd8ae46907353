/* W1 by hand: four streams on one key, ROWS or RANGE windows, row ids out.

   The algorithm of bench/limit_kernels.py (w1_loop) and bench/peers/loop_kernels.py (w1_range_loop): a table of newest
   sequence numbers by bucket and stream, chains of older ones in rings that end where the window does. */

#include <stdint.h>

typedef struct {
    int32_t *heads;     /* [4 << bits], four of a bucket side by side; -1 = none */
    int32_t *link;      /* [4][ring], the next older tuple of the bucket */
    int64_t *held;      /* [4][ring], keys */
    int64_t *times;     /* [4][ring], event times; RANGE only */
    int64_t *nxt;       /* [4], sequence number of the next arrival */
    int32_t *ids;       /* [4][room] */
    int64_t mask;       /* ring - 1 */
    int64_t ring;
    int64_t room;
    int64_t bits;
} tables;

static inline int64_t low_mark(int64_t nxt, int64_t rows)
{
    return nxt > rows ? nxt - rows : 0;
}

static inline int64_t join(const uint8_t *order, const int64_t *keys, const int64_t *times, int64_t arrivals,
                           int64_t width, int range, tables *kept)
{
    static const uint8_t others[4][3] = {{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}};
    int32_t *restrict heads = kept->heads;
    int32_t *restrict link = kept->link;
    int64_t *restrict held = kept->held;
    int64_t *restrict nxt = kept->nxt;
    int64_t *restrict held_times = kept->times;
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
            if (held[x * ring + (s0 & mask)] != key)
                continue;
            for (int64_t s1 = heads[row + y]; s1 >= low_y; s1 = link[y * ring + (s1 & mask)]) {
                if (range && held_times[y * ring + (s1 & mask)] < oldest)
                    break;
                if (held[y * ring + (s1 & mask)] != key)
                    continue;
                for (int64_t s2 = heads[row + z]; s2 >= low_z; s2 = link[z * ring + (s2 & mask)]) {
                    if (range && held_times[z * ring + (s2 & mask)] < oldest)
                        break;
                    if (held[z * ring + (s2 & mask)] != key)
                        continue;
                    kept->ids[i * room + n] = (int32_t)nxt[i];
                    kept->ids[x * room + n] = (int32_t)s0;
                    kept->ids[y * room + n] = (int32_t)s1;
                    kept->ids[z * room + n] = (int32_t)s2;
                    n++;
                }
            }
        }
        const int64_t s = nxt[i];
        held[i * ring + (s & mask)] = key;
        if (range)
            held_times[i * ring + (s & mask)] = times[a];
        link[i * ring + (s & mask)] = heads[row + i];
        heads[row + i] = (int32_t)s;
        nxt[i] = s + 1;
    }
    return n;
}

/* Arrivals in order: order[n], keys[n], times[n] (RANGE only). Return the number of results, row ids in kept->ids. */

int64_t w1_rows(const uint8_t *order, const int64_t *keys, const int64_t *times, int64_t arrivals, int64_t width,
                tables *kept)
{
    return join(order, keys, times, arrivals, width, 0, kept);
}

int64_t w1_range(const uint8_t *order, const int64_t *keys, const int64_t *times, int64_t arrivals, int64_t width,
                 tables *kept)
{
    return join(order, keys, times, arrivals, width, 1, kept);
}
