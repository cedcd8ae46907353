"""Names of the columns of the descriptor tables that kernels read (int64, one row per stream, class, attribute, hop).

The tables are arrays and not objects: arrays pass into a kernel, and its compiled code fits any number of rows.
"""

from __future__ import annotations

# streams[i]
S_RECS = 0  # where the ring of tuple records of the stream starts in `recs`
S_MASK = 1  # capacity of the ring - 1; slot of a tuple = sequence number & mask
S_WIDTH = 2  # int32s in a record: (link, key id) for each attribute
S_NEXT = 3  # sequence number of the next arrival
S_LO = 4  # low mark: the oldest sequence number still in the window
S_KIND = 5  # WindowKind
S_SIZE = 6  # rows or ticks
S_VALUES = 7  # where its rings of values start in `values`, same mask; the first has event times in timed queries
S_ATTR0 = 8  # its attributes are rows ATTR0 .. ATTR1 - 1 of `attrs`
S_ATTR1 = 9
S_BASE = 10  # arrival number = BASE + sequence number (sequence numbers are renumbered before they leave int32)
S_WALKED = 11  # arrivals whose leaf hops all found a tuple, so that their walk continued
S_BANDS = 12  # the band of its first ring of values, a row of `bands`; the other rings follow
S_KEY = 13  # of a table: the row of `attrs` of its primary key; -1 = a stream
S_LIFE = 14  # of a table: where (life, ended version, S_NEXT when that was buried) lies in a record; 0 = a stream
S_NUMBERS = 15  # of a table: where its ring of arrival numbers starts in `values`
S_FIELDS = 16

# classes[c]; from C_MEMBER on, the stream of each SteM column of a head row
C_HEADS = 0  # where the head rows start in `heads`
C_STRIDE = 1  # columns of a head row: the SteMs of the class (a STAIR has its own heads)
C_CAPACITY = 2  # key ids there is room for
C_NEXT = 3  # key ids assigned so far, recycled ones included
C_FREE = 4  # key ids to recycle, on the stack at FREELIST
C_FREELIST = 5
C_TABLE = 6  # where the hash table starts, slots of two int64s (tag, key id)
C_SHIFT = 7  # 64 minus the bits of a slot
C_WORDS = 8  # where the words of the keys start
C_WIDTH = 9  # words of a key
C_HAND = 10  # the key id that the sweep examines next
C_DEBT = 11  # key ids that the sweep has yet to examine
C_STEMS = 12  # SteM columns
C_NEXT0 = 13  # NEXT and FREE when the open push began, after its sweep
C_FREE0 = 14
C_SCAN = 15  # 1 = a scan class: its keys identify tuples (`stairs.graph`)
C_SECRET = 16  # the homes of keys: factors of `stairs.kernels.hashes.home`
C_FACTOR = 17
C_LAST = 18
C_TAG_SEED = 19  # the tags of keys of several words: seeds of `hash_words`
C_TAG_FACTOR = 20
C_MAY_PASS = 21  # slots that a key may pass on the average, SPACED or MIXED
C_CROWDED = 22  # 1 = keys passed more, so the class needs other factors
C_MEMBER = 23

# attrs[x]: one row for each (stream, class), streams ascending, then classes
A_STREAM = 0
A_CLASS = 1
A_COLUMN = 2  # its column in the head row of the class
A_OFFSET = 3  # where its (link, key id) lies in the record of a tuple
A_INPUT = 4  # where the words of the open push start in `input`
A_LINK0 = 5  # the other streams of the class are rows LINK0 .. LINK1 - 1 of `links`
A_LINK1 = 6
A_MARKS = 7  # lists with a no-good mark (`stairs.kernels.marks`)
A_HITS = 8  # probes that a mark ended, since the marks were judged last
A_LOST = 9  # look-ups lost on marks since then
A_REST = 10  # chunks before learning goes on
A_PAUSE = 11  # chunks of the last rest
A_WORTH = 12  # look-ups that a hit saves, beyond SAVED: those that marked lists had caused
A_SUPPORT = 13  # look-ups saved by marks of other attributes that rest on its own, since they were judged last
A_DEAD = 14  # where the marks of its rows start in `dead` for the open push
A_FIELDS = 15

# links[k]: another stream with the class of an attribute
N_STREAM = 0
N_COLUMN = 1  # its column in the head row of the class
N_ATTR = 2  # its row of `attrs`
N_FIELDS = 3

# bands[b]: the sorted runs of a ring of values (`stairs.kernels.bands`)
B_VALUES = 0  # address of the values of its entries, int64
B_TUPLES = 1  # address of their sequence numbers, int32
B_SLOTS = 2  # slots of the ring for which it has room, 0 = it has no room
B_REFUSED = 3  # 1 = there is no memory for it at present, so scans do without it
B_LEAST = 4  # tuples of a window that is searched by it
B_WAITING = 5  # fewer new tuples are not sorted in yet
B_UPTO = 6  # the runs contain the tuples before it
B_LOW = 7  # ... that are not before this one: the greatest low mark at which expired tuples were dropped
B_COUNT = 8  # entries of each run
B_AT = 11  # the entry at which each run starts
B_BATCH = 14  # ... and the batch of tuples that are sorted in next
B_AT_ONCE = 15  # tuples of a batch
B_MOST = 16  # entries of the first two runs beyond which they are merged into the next one
B_FIELDS = 18

# hops[h]: one probe of a route
H_TARGET = 0  # the stream probed, or the first stream of the STAIR probed
H_CLASS = 1  # the class whose key the hop probes by
H_COLUMN = 2  # head column of the target
H_OFFSET = 3  # where (link, key id) of this class lies in a record of the stream; SCANS = all tuples are candidates
H_OPS0 = 4  # keys to check and to bind on a match: rows OPS0 .. OPS1 - 1 of `ops` (trunk hops only)
H_OPS1 = 5
H_COMPARE = 6  # the first comparison to check on a match, a row of `compares`, -1 = none
H_LEAF0 = 7  # the leaf hops whose class this hop binds: hops LEAF0 .. LEAF1 - 1 (trunk hops only)
H_LEAF1 = 8
H_NEWER = H_LEAF0  # routes over STAIRs: where the marks of a later track start, which finds what is all new; 0 = none
H_STATE = 9  # the STAIR probed, -1 = the SteM of the target
H_STORE = 10  # the STAIR that the composite found by this hop goes into, -1 = none
H_FIELDS = 11

# counts[:, h]: what a hop has done; one row for each of these, so that the counters of all hops are copied at once
V_PROBES = 0  # chains walked, and tuples in them that pass the checks
V_MATCHES = 1
V_TESTED = 2  # partial results for which a trunk hop was looked up ahead of its turn, since this was judged last
V_KILLED = 3  # ... and those that found nothing
V_REST = 4  # chunks before it is looked up ahead again
V_FIELDS = 5

SCANS = -1
"""H_OFFSET of a hop that scans: it follows no link."""

# span[i]: the route of stream i
R_TRUNK = 0  # trunk hops TRUNK .. LEAF - 1
R_LEAF = 1  # leaf hops LEAF .. END - 1, those whose class the arrival itself binds first
R_ROOT = 2  # ... which are LEAF .. ROOT - 1
R_END = 3
R_FIELDS = 4

# states[x]: one STAIR
E_HEADS = 0  # address of its heads, one per key id
E_RING = 1  # address of its ring of entries
E_MASK = 2  # capacity of the ring - 1; slot of an entry = entry number & mask
E_WIDTH = 3  # int32s in an entry: its link, then a sequence number for each stream of the set
E_NEXT = 4  # number of the next entry
E_TAIL = 5  # every entry before it is dead
E_BIRTH = 6  # a key is attempted when its head is at least this
E_SPLIT = 7  # entries with a lower number still lie in the old ring; 0 = there is no old ring
E_CLASS = 8  # the class it is indexed on
E_PARTS0 = 9  # the streams of the set are rows PARTS0 .. PARTS1 - 1 of `parts`
E_PARTS1 = 10
E_KEY_PART = 11  # the component, counted from PARTS0, that has the key id of an entry
E_KEY_OFFSET = 12  # where (link, key id) of the class lies in a record of that stream
E_UNMARKED = 13  # key ids not attempted, counted only while BIRTH is -1
E_COUNT = 14  # entries the last operation stored
E_LOWS = 15  # where the low marks of its track start in `lows`
E_ROUTE = 16  # the route of its promotion over the STAIRs below it, a row of `span`
E_BASE = 17  # the route of its promotion over SteMs alone
E_SHORT = 18  # entries that found no room since Python last made room
E_MARKED = 19  # key ids attempted, counted only while BIRTH is 0 or more
E_HAND = 20  # the key id that completion examines next
E_STORED = 21  # counters since its creation: entries stored by walks,
E_PASSED = 22  # ... composites not stored because their key was not attempted,
E_PROMOTED = 23  # ... keys promoted,
E_COMPUTED = 24  # ... entries that promotions stored
E_DEBT = 25  # live entries that the tail passed, less those stored since
E_OLD = 26  # address of the old ring
E_OLD_MASK = 27  # its capacity - 1
E_AT = 28  # M_ARRIVAL of the arrival that stored here last,
E_FROM = 29  # ... and the number of its first entry, or a lower one
E_FIELDS = 30

# parts[p]: one stream of a STAIR's set
P_STREAM = 0
P_COLUMN = 1  # its column in the head row of the STAIR's class, -1 = it has no attribute in the class
P_LIFE = 2  # where the life of a version lies in a record, 0 = the tuples of the stream have none
P_FIELDS = 3

# ops[o]: compare or bind the key id of a component
O_CLASS = 0
O_OFFSET = 1
O_CHECK = 2  # 1 = must equal the key id bound for the class, 0 = binds it; in an eddy 2 = binds it always
O_STREAM = 3  # the stream of the component
O_COLUMN = 4  # its column in a head row of the class
O_FIELDS = 5

# compares[x]: a comparison of a component found by a hop with one that was bound before; v and w are their values
X_STREAM = 0  # the stream of the component found
X_RING = 1  # its ring of values
X_OTHER = 2  # the stream of the other component
X_OTHER_RING = 3
X_KIND = 4  # WITHIN, DIFFERS, or a kind of floats
X_LOW = 5  # WITHIN: w + LOW <= v <= w + HIGH; DIFFERS: v != w + LOW; floats: bits of a float64
X_HIGH = 6
X_EXCLUDED = 7  # floats: 1 = the low bound is excluded, 2 = the high one, 3 = both
X_LEVEL = 8  # the level that binds the other component; in an eddy its bit in the ranking, -1 = the arrival
X_REMAINING = 9  # the comparisons of the hop from this one on
X_FIELDS = 10

WITHIN = 0
DIFFERS = 1
FLOATS_WITHIN = 2
FLOATS_DIFFER = 3
FLOATS_TURNED = 4
"""Added to a kind of floats if v and w change places. Sums of floats are rounded, so bounds cannot change sides."""

# frames[d]: a tuple in flight in an eddy, and its present probe
T_HOP = 0
T_CANDIDATE = 1
T_OFFSET = 2  # of the link in a record, if it probes a SteM; SCANS - 1 - x = it scans by comparison x, -1 = by none
T_DONE = 3  # two words each
T_READY = 5
T_FIELDS = 7

# chunk.streams[i]: the events of a stream in the open chunk
K_FIRST = 0  # sequence number of its first arrival
K_COUNT = 1  # its arrivals
K_START = 2  # where their places start in `chunk.places`
K_LOW = 3  # the low mark when the chunk began
K_STAY = 4  # a tuple from here on is in its window at each event of the chunk, once it has arrived
K_GONE = 5  # its departures (only in a changelog)
K_GONE_AT = 6  # where their places start in `chunk.departures`
K_MOST = 7  # the most arrivals that the chunk may have
K_FIELDS = 8

# chunk.levels[i, l]: the partial results of the events of stream i, after hop l of its route
L_AT = 0  # where they start in `chunk.partials`
L_SIZE = 1  # how many there are
L_MATCHES = 2  # tuples that the hop found
L_PROBES = 3  # chains that the hop walked
L_FIELDS = 4

# partials: int32s of one partial result
Q_PARENT = 0  # the partial result of the level before that it extends, counted within the level
Q_TUPLE = 1  # sequence number of the component that the hop added
Q_PLACE = 2  # place of the event in the chunk
Q_HEAD = 3  # the newest tuple of the key by which the next hop probes
Q_FIELDS = 4

# rows[i] of an Opening: the rows of a stream in the open push, a column for each stream
J_ROWS = 0  # their number
J_FIRST = 1  # sequence number of the first
J_WORDS = 2  # address of their key words
J_DEAD = 3  # where their marks start in `dead`
J_FIELDS = 4

# meta; those before M_OF_PUSH belong to the open push and are 0 when it begins
M_ARRIVAL = 0  # arrivals of the push processed so far
M_INTERN_ATTR = 1  # progress of the interning: attribute row, row of the batch
M_INTERN_ROW = 2
M_OUT = 3  # results of the push so far
M_STARTED = 4  # 1 = the kernel has swept, and recorded NEXT0 and FREE0 of all classes
M_TALLIED = 5  # 1 = the counters already include the walk that is repeated
M_DELETED = 6  # results of the push that are deletions
M_INSERTED = 7  # arrivals of the push inserted so far; those after M_ARRIVAL have yet to probe
M_OF_PUSH = 8
M_WATERMARK = 8  # the watermark at the last arrival; -FOREVER before the first
M_NEWEST = 9  # no event time that came is greater
M_TIMED = 10  # 1 = event times are stored
M_NEED = 11  # the room a status asks for: results in all, the class that needs keys or a hash, the band, or the stream
M_RESULTS = 12  # results since the start
M_ARRIVALS = 13  # arrivals since the start
M_SHORT = 14  # bits: the walk lacked room for results, for entries
M_STOP = 15  # arrivals of the push to process before the kernel returns
M_MODE = 16  # how tuples are routed: VIRTUAL, STORED, ROUTED
M_CHANGELOG = 17  # what deletes results: NOTHING, DEPARTURES or ENDS
M_SUPPRESSED = 18  # results that one plan found and another plan reports
M_BEHIND = 19  # by how much a tuple, or an arrival of the push, may be older than one that came before it
M_AFTER = 20  # the watermark after the open push
M_MARKS = 21  # lists with a no-good mark, of all attributes
M_APART = 22  # 1 = a null in one key of a row leaves the other keys of the row alive (`stairs.shared`)
M_LAGS = 23  # 1 = the watermark may be below the greatest event time that came
M_PRESENCE = 24  # 1 = the bits of `presence` are true (`stairs.kernels.presence`)
M_BAND = 25  # 1 + the band that a walk lacked: it is made before the next arrival
M_FIELDS = 26

VIRTUAL = 0
STORED = 1
ROUTED = 2
LOADING = 3  # not at all: arrivals are inserted, without a probe or a stored composite

NOTHING = 0
DEPARTURES = 1  # a component leaves its window, or its version ends
ENDS = 2  # the version of a component ends

SHORT_OUTPUT = 1
SHORT_ENTRIES = 2

# status of a kernel
DONE = 0
NEED_OUTPUT = 1
NEED_KEYS = 2
NEED_ENTRIES = 3
NEED_PARTIALS = 4
NEED_BAND = 5
NEED_RING = 6
NEED_INPUT = 7
NEED_NUMBERS = 8  # the streams have to be renumbered
NEED_HASH = 9  # the keys of a class crowd in its table

INSERTED = 0
DELETED = 1
UPDATED_TO = 2
UPDATED_FROM = 3
"""Sign of a result. Odd: it is taken back. A change of a table replaces the result UPDATED_FROM by UPDATED_TO."""
