-- admit: decides requests, each over a list of limits as one, as if they had come one by one at the same moment. All live
-- limits of a request are checked, then all are charged or none is. A shadow only watches: it is charged if the live ones
-- are and it has granted by itself.
--
-- KEYS  those of each limiter and its buckets, in order (see algorithms.lua)
-- ARGV  the limiters and their buckets (see algorithms.lua); the requests, packed little-endian, in runs of kinds that are
--       alike but for their buckets: how many requests of each kind (u32), how many kinds (u16), and how many limits (u8,
--       at least one); for each limit its bucket by number, from 1 (u16), how (u8), and permits asked for (u32); for
--       foreign limiters, random bytes (8 of ours; 16 are written as they are); now (ms; left out: the server's TIME). How:
--       1 if it only watches; 3 for all limits of a kind that are token buckets and live, if no other kind of the call asks
--       for any of their buckets; 2 for one limit of a kind if no other request of the call asks for its bucket, and its
--       algorithm has a take(); else 0. With 2 and 3, each kind of a run asks for the bucket after that of the kind before,
--       of the same limiter
-- Returns now (u64, ms) and the answers, packed little-endian: for each row of requests that were answered alike how many
--       (u32), then for each limit: whether it was granted (1), had a slot in future (2), or was refused (0) (u8), remaining
--       after the last of them (u32), reset (u48, ms), and delay or wait (i64, ms; -1: never, 0: ask again at once) unless
--       it was granted. No answers if a limit needs other boundaries of its calendar, those around now. Or the error of a
--       limit that cannot be judged
--
-- Invariant: a refused request changes no bucket, nor does one that could not be judged, and a shadow changes nothing but
-- its own. TIME is read once, and every bucket read and written at most once, whatever is asked of it. Nothing is written
-- before all buckets that could not be judged are known.

local now, random = present(ARGV[4] or ''), ARGV[3]
local plan = plan_now(now)
local failure, known = open_all(plan, now)
if failure then return redis.error_reply(failure) end
if not known then return struct.pack('<I8', now) end
local answers = decide(plan, now, random, ARGV[2])
write_all(random)
return answers
