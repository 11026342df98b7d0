-------------------------------- MODULE resize --------------------------------
(* Do buckets split and merge while writers write, with each row read once at    *)
(* every moment? An append is one step: protocol.tla shows why it may be. Every  *)
(* file, and every look at the ring or at what has completed, is a step of its   *)
(* own, and a process may rest between any two of them for ever.                 *)
(* A file is read by the instant in its name; its rows are <<write, key>>. What   *)
(* a process has copied, or found there when it wanted to create it, is the same. *)
(* With portions, a process that begins to copy finds the last write of which     *)
(* there is a copy, and takes for whole what is in no portion with that write.    *)
(* Or writes are virtual: one that began after a pending resize puts its rows     *)
(* into the children at once, and into the inputs files that refer to those.      *)
EXTENDS Naturals, FiniteSets, TLC
CONSTANTS W, E,        \* writers, executors
          Shape,       \* which buckets there are, and what each resize makes of them
          KeySets,     \* the keys of a write, one of these sets
          Mode,        \* "free": non-blocking with event time. "order": optimistic, of writes that read nothing: they
                       \* yield only to what would lie behind them. "strict": optimistic, to all that overlaps
          Kinds,       \* of writes: "rows", or "virtual" where resizes are virtual, and "all", an overwrite, which opens
                       \* base files
          MustClose,   \* a resize completes only once it is closed
          Portion,     \* of how many writes a process makes copies before those of the next ones; 0: it sees of each copy
                       \* whether it is there
          Expired, Cancelled,  \* how many writes, and resizes, other processes may abort
          Live,        \* TRUE: from any state on, one writer may be the only process that takes steps
          Weak, None   \* the rules that are left out
Virtual == "virtual" \in Kinds
VARIABLES now,         \* the next time: requests, and completions of writes and resizes
          wr, ex,      \* what each writer, each executor is about to do
          rz,          \* of each resize: state, request c, inputs src, completion t
          files,
          done,        \* completed writes: request w, completion c, group of each key, whether it is an overwrite,
                       \* and of each key that it has in a child of a resize that is pending, that child
          solo         \* the only process that still takes steps
vars == <<now, wr, rz, ex, files, done, solo>>
\* -- rings: Ring0 gives each key its group; resize n gives the keys of its inputs the groups that it makes
One(a) == 1 :> a
Two(a, b) == 1 :> a @@ 2 :> b
Ring0  == CASE Shape \in {"move", "move twice"}    -> One(0)
            [] Shape \in {"split", "split, merge"} -> Two(0, 0)
            [] OTHER                               -> Two(0, 1)
Target == CASE Shape = "move"         -> <<One(2)>>
            [] Shape = "move twice"   -> <<One(2), One(4)>>
            [] Shape = "merge"        -> <<Two(2, 2)>>             \* two inputs, one child
            [] Shape = "split"        -> <<Two(2, 3)>>             \* one input, two children
            [] Shape = "split, merge" -> <<Two(2, 3), Two(4, 4)>>
            [] Shape = "one of two"   -> <<One(2)>>                \* the other bucket stays
            [] Shape = "both"         -> <<Two(2, 3)>>             \* two inputs, a child for each
            [] Shape = "two at once"  -> <<One(2), 2 :> 3>>        \* two partitions
R    == DOMAIN Target
Keys == DOMAIN Ring0
Range(f) == {f[k] : k \in DOMAIN f}
Children(n)  == Range(Target[n])
Done(n)      == rz[n].state = "done"
Open(n)      == rz[n].state \in {"planned", "closed"}
MadeBy(k)    == {n \in R : Done(n) /\ k \in DOMAIN Target[n]}
Newest(k)    == CHOOSE n \in MadeBy(k) : \A m \in MadeBy(k) : rz[m].c <= rz[n].c
Ring(k)      == IF MadeBy(k) = {} THEN Ring0[k] ELSE Target[Newest(k)][k]
Since(k)     == IF MadeBy(k) = {} THEN 0 ELSE rz[Newest(k)].c      \* the resize that made the key's group
Replaced     == UNION {rz[n].src : n \in {m \in R : Done(m)}}
KeysOf(g)    == {k \in Keys : Ring0[k] = g \/ (\E n \in R : k \in DOMAIN Target[n] /\ Target[n][k] = g)}
Descends(gs) == {Ring(k) : k \in UNION {KeysOf(g) : g \in gs}}     \* where the keys of groups are now
\* -- files: group, instant in the name, version (0: base file), piece; the first create of a name wins. `refs` are
\* the groups and pieces of the write's files whose rows count here
File(g, t, v, p, rows) == [g |-> g, t |-> t, v |-> v, p |-> p, rows |-> rows, refs |-> {}]
IsThere(f) == \E h \in files : h.g = f.g /\ h.t = f.t /\ h.v = f.v /\ h.p = f.p
Create(f)  == files' = IF IsThere(f) THEN files ELSE files \cup {f}
Rows(t, home, g) == {<<t, k>> : k \in {j \in DOMAIN home : home[j] = g}}
Without(home, kids) == [k \in DOMAIN home \ DOMAIN kids |-> home[k]]
OwnHome(x) == IF "copies references" \in Weak THEN x.home ELSE Without(x.home, x.kids)
Before(f, h) == \/ f.t < h.t
                \/ f.t = h.t /\ f.v < h.v
                \/ f.t = h.t /\ f.v = h.v /\ f.p < h.p
                \/ f.t = h.t /\ f.v = h.v /\ f.p = h.p /\ f.g < h.g
First(fs)  == CHOOSE f \in fs : \A h \in fs : ~Before(h, f)
\* -- readers, as of a completion time: what is ended, what replaced; a log lies on the newest base file whose
\* instant is not later than the completion of the instant in the log's name
Names(at)  == {x.w : x \in {y \in done : y.c <= at}} \cup {rz[n].c : n \in {m \in R : Done(m) /\ rz[m].t <= at}}
Hidden(at) == UNION {rz[n].src : n \in {m \in R : Done(m) /\ rz[m].t <= at}}
Ended(t)   == IF \E x \in done : x.w = t THEN (CHOOSE x \in done : x.w = t).c ELSE rz[CHOOSE n \in R : rz[n].c = t].t
\* children of virtual resizes that have not completed
Unborn(at) == IF Virtual /\ "shows children" \notin Weak
              THEN UNION {Children(n) : n \in {m \in R : ~(Done(m) /\ rz[m].t <= at)}} ELSE {}
Followed(f) == [f EXCEPT !.rows = f.rows \cup UNION {h.rows : h \in {x \in files : x.t = f.t /\ <<x.g, x.p>> \in f.refs}}]
Shown(at)  == LET names == Names(at)  unborn == Unborn(at)
                  hidden(f) == f.g \in Hidden(at) /\ ~("follows" \in Weak /\ f.refs # {})
                  seen  == {f \in files : f.t \in names /\ ~hidden(f) /\ f.g \notin unborn}
                  bases == {f \in seen : f.v = 0} IN
              {Followed(f) : f \in {h \in seen :
                 \A b \in bases : b.g = h.g /\ b # h => b.t < IF h.v = 0 THEN h.t ELSE Ended(h.t)}}
Times      == {x.c : x \in done} \cup {rz[n].t : n \in {m \in R : Done(m)}}
\* -- what a resize has to make
Planned(n)  == UNION {f.rows : f \in {h \in Shown(rz[n].c) : h.g \in rz[n].src}}       \* the slices that the plan names
Base(n, g)  == File(g, rz[n].c, 0, 0, {r \in Planned(n) : Target[n][r[2]] = g})
Bases(n)    == {Base(n, g) : g \in {c \in Children(n) : ~IsThere(File(c, rz[n].c, 0, 0, {}))}}
Missing(n)  == {x \in done : x.c > rz[n].c /\ Range(OwnHome(x)) \cap rz[n].src # {}}
Piece(g)    == IF "one name" \in Weak THEN 0 ELSE g
Copies(n, x) == {f \in {File(c, rz[n].c, x.c, Piece(g), {r \in Rows(x.w, OwnHome(x), g) : Target[n][r[2]] = c}) :
                        c \in Children(n), g \in rz[n].src \cap Range(x.home)} : f.rows # {}}
Owed(n)     == {f \in UNION {Copies(n, x) : x \in Missing(n)} : ~IsThere(f)}
\* -- what a process takes for copied: `whole` of a process are writes, `made` the copies that it made of a portion
Found(n)    == {x.c : x \in {y \in Missing(n) : \E f \in Copies(n, y) : IsThere(f)}}
Behind(x, xs) == Cardinality({y \in xs : x.c < y.c})
Whole(n)    == IF Portion = 0 THEN {} ELSE
               LET xs == {x \in Missing(n) : \E c \in Found(n) : x.c <= c} IN
               {x.w : x \in {y \in xs : Behind(y, xs) >= IF "last is whole" \in Weak THEN 1 ELSE Portion}}
NotWhole(n, p) == {x \in Missing(n) : x.w \notin p.whole}
InPortion(n, p) == {x \in NotWhole(n, p) : Cardinality({y \in NotWhole(n, p) : y.c < x.c}) < Portion}
OfPortion(n, p) == UNION {Copies(n, x) : x \in InPortion(n, p)}
ToMake(n, p) == IF Portion = 0 THEN Owed(n) ELSE OfPortion(n, p) \ p.made
AllCopied(n, p) == IF Portion = 0 THEN Owed(n) = {} ELSE NotWhole(n, p) = {}
WithCopy(n, p) == IF Portion = 0 \/ p.todo.v = 0 THEN p
                  ELSE IF OfPortion(n, p) \subseteq p.made \cup {p.todo}
                  THEN [p EXCEPT !.made = {}, !.whole = p.whole \cup {x.w : x \in InPortion(n, p)}]
                  ELSE [p EXCEPT !.made = p.made \cup {p.todo}]
\* -- decisions on a resize
Begun(n)    == [state |-> "planned", c |-> now, src |-> {Ring(k) : k \in DOMAIN Target[n]}, t |-> 0]
Rests(n)    == [state |-> "none", c |-> 0, src |-> {}, t |-> 0]
MayPlan(n)  == /\ rz[n].state = "none"
               /\ \A m \in R \ {n} : DOMAIN Target[m] \cap DOMAIN Target[n] # {} =>
                    /\ ~Open(m)
                    /\ m < n => rz[m].state # "none"               \* resizes of the same keys, in this order
MayComplete(n, p) == /\ Open(n) /\ Bases(n) = {} /\ (MustClose => rz[n].state = "closed")
                     /\ "unchecked" \in Weak \/ AllCopied(n, p)
\* no completed write has rows in its children
MayCancel(n) == Open(n) /\ ("cancels" \in Weak \/ ~\E x \in done : Range(x.kids) \cap Children(n) # {})
PlanIt(n)   == rz' = [rz EXCEPT ![n] = Begun(n)] /\ now' = now + 1
CloseIt(n)  == rz' = [rz EXCEPT ![n].state = "closed"] /\ UNCHANGED now
FinishIt(n) == rz' = [rz EXCEPT ![n].state = "done", ![n].t = now] /\ now' = now + 1
\* -- records of processes
Idle == [pc |-> "idle", req |-> 0, all |-> FALSE, home |-> <<>>, kids |-> <<>>, was |-> {}, of |-> 0, todo |-> None,
         whole |-> {}, made |-> {}, dead |-> FALSE]
Away == [pc |-> "idle", of |-> 0, todo |-> None, whole |-> {}, made |-> {}]
Init == /\ now = 1 /\ wr = [w \in W |-> Idle] /\ rz = [n \in R |-> Rests(n)] /\ ex = [e \in E |-> Away]
        /\ files = {} /\ done = {} /\ solo = None
SetW(w, r) == wr' = [wr EXCEPT ![w] = r]
SetE(e, r) == ex' = [ex EXCEPT ![e] = r]
\* -- an executor: it stays with the resize that it took, whatever becomes of that
Plan(e) == /\ ex[e].pc = "idle"
           /\ \E n \in R : MayPlan(n) /\ PlanIt(n)
           /\ UNCHANGED <<wr, ex, files, done>>
Take(e) == /\ ex[e].pc = "idle"
           /\ \E n \in R : Open(n) /\ SetE(e, [Away EXCEPT !.pc = "work", !.of = n, !.whole = Whole(n)])
           /\ UNCHANGED <<now, wr, rz, files, done>>
MakeBase(e) == /\ ex[e].pc = "work" /\ Bases(ex[e].of) # {} /\ Create(First(Bases(ex[e].of)))
               /\ UNCHANGED <<now, wr, rz, ex, done>>
Look(e) == LET n == ex[e].of IN
           /\ ex[e].pc = "work" /\ Bases(n) = {}
           /\ IF ~Open(n) THEN SetE(e, Away)
              ELSE IF AllCopied(n, ex[e]) THEN SetE(e, [ex[e] EXCEPT !.pc = "ready"])
              ELSE \E f \in ToMake(n, ex[e]) : SetE(e, [ex[e] EXCEPT !.pc = "copy", !.todo = f])   \* in any order
           /\ UNCHANGED <<now, wr, rz, files, done>>
Copy(e) == /\ ex[e].pc = "copy" /\ Create(ex[e].todo)
           /\ SetE(e, [WithCopy(ex[e].of, ex[e]) EXCEPT !.pc = "work", !.todo = None])
           /\ UNCHANGED <<now, wr, rz, done>>
Close(e) == /\ ex[e].pc = "ready" /\ rz[ex[e].of].state = "planned" /\ "no close" \notin Weak
            /\ CloseIt(ex[e].of) /\ SetE(e, [ex[e] EXCEPT !.pc = "work"]) /\ UNCHANGED <<wr, files, done>>
Finish(e) == /\ ex[e].pc = "ready" /\ MayComplete(ex[e].of, ex[e]) /\ FinishIt(ex[e].of) /\ SetE(e, Away)
             /\ UNCHANGED <<wr, files, done>>
Refused(e) == /\ ex[e].pc = "ready" /\ ~MayComplete(ex[e].of, ex[e])
              /\ SetE(e, IF Open(ex[e].of) THEN [ex[e] EXCEPT !.pc = "work"] ELSE Away)
              /\ UNCHANGED <<now, wr, rz, files, done>>
Executor(e) == Plan(e) \/ Take(e) \/ MakeBase(e) \/ Look(e) \/ Copy(e) \/ Close(e) \/ Finish(e) \/ Refused(e)
\* -- a writer: home gives each of its keys a group, where it is about to write, or has; kids those of its keys a child
\* that it writes to at once
Groups(w)  == Range(wr[w].home)
OwnGroups(w) == Range(Without(wr[w].home, wr[w].kids))
Begin(w)   == /\ wr[w].pc = "idle" /\ now' = now + 1
              /\ \E kind \in Kinds : \E ks \in IF kind = "all" THEN {Keys} ELSE KeySets :
                   SetW(w, [Idle EXCEPT !.pc = "begun", !.req = now, !.all = kind = "all", !.home = [k \in ks |-> None]])
              /\ UNCHANGED <<rz, ex, files, done>>
Resizing(w, k) == {n \in R : Open(n) /\ rz[n].c < wr[w].req /\ k \in DOMAIN Target[n]}
Kids(w)     == IF wr[w].all \/ ~Virtual THEN <<>>
               ELSE [k \in {j \in DOMAIN wr[w].home : Resizing(w, j) # {}} |-> Target[CHOOSE n \in Resizing(w, k) : TRUE][k]]
AsPlaced(w) == [wr[w] EXCEPT !.pc = "placed", !.home = [k \in DOMAIN wr[w].home |-> Ring(k)]]
Place(w)   == /\ wr[w].pc = "begun"
              /\ \E kids \in {Kids(w)} \cup (IF "plain" \in Weak THEN {<<>>} ELSE {}) : SetW(w, [AsPlaced(w) EXCEPT !.kids = kids])
              /\ UNCHANGED <<now, rz, ex, files, done>>
Own(w, g)  == File(g, wr[w].req, IF wr[w].all THEN 0 ELSE 1, 0, Rows(wr[w].req, Without(wr[w].home, wr[w].kids), g))
\* one log for each pair of input and child, and one that refers to them in each input
Of(g)      == IF "one log" \in Weak THEN 1 ELSE g + 1
Pair(w, g, c) == File(c, wr[w].req, 1, Of(g), {<<wr[w].req, k>> : k \in {j \in DOMAIN wr[w].kids :
                   wr[w].kids[j] = c /\ Of(wr[w].home[j]) = Of(g)}})
Pairs(w)   == {<<wr[w].home[k], wr[w].kids[k]>> : k \in DOMAIN wr[w].kids}
Refer(w, g) == [File(g, wr[w].req, 1, 0, {}) EXCEPT !.refs = {<<x[2], Of(g)>> : x \in {y \in Pairs(w) : y[1] = g}}]
Unwritten(w) == {f \in {Own(w, g) : g \in OwnGroups(w)} \cup {Pair(w, x[1], x[2]) : x \in Pairs(w)}
                        \cup {Refer(w, x[1]) : x \in Pairs(w)} : ~IsThere(f)}
Write(w)   == /\ wr[w].pc = "placed" /\ Unwritten(w) # {} /\ Create(First(Unwritten(w)))
              /\ SetW(w, IF Cardinality(Unwritten(w)) = 1 THEN [wr[w] EXCEPT !.pc = "written"] ELSE wr[w])
              /\ UNCHANGED <<now, rz, ex, done>>
\* what meets a write when it wants to complete
ClosedTo(w)   == IF "unheeded" \in Weak THEN {} ELSE {n \in R : rz[n].state = "closed" /\ rz[n].src \cap OwnGroups(w) # {}}
IsOlder(w)    == "keeps instant" \notin Weak /\ \E k \in DOMAIN wr[w].home : Since(k) > wr[w].req
IsReplaced(w) == "stays" \notin Weak /\ Groups(w) \cap Replaced # {}
Touched(w)    == Groups(w) \cup wr[w].was
Meets(w)      == {x \in done : x.c > wr[w].req /\ IF "by name" \in Weak THEN Range(x.home) \cap Touched(w) # {}
                                                  ELSE Descends(Range(x.home)) \cap Descends(Groups(w)) # {}}
IsOvertaken(w) == IF Mode = "strict" \/ wr[w].all THEN Meets(w) # {}
                  ELSE Mode = "order" /\ \E x \in Meets(w) : x.w > wr[w].req
\* of an overwrite: a pending resize of its groups; one that made them and ended after it began, so that the
\* copies would lie on the overwrite's base files
Undoes(w)     == {n \in R : wr[w].all /\ "beside" \notin Weak /\ Open(n) /\ rz[n].src \cap Groups(w) # {}}
\* of one with rows in children: their resize was aborted; it has completed, and the references are to leave
Orphan(w)     == "completes" \notin Weak /\ \E n \in R : rz[n].state = "aborted" /\ Children(n) \cap Range(wr[w].kids) # {}
Born(w)       == {k \in DOMAIN wr[w].kids : \E n \in R : Done(n) /\ wr[w].kids[k] \in Children(n)}
IsUnder(w)    == wr[w].all /\ "under copies" \notin Weak /\ \E n \in R : Done(n) /\ rz[n].t > wr[w].req /\ Children(n) \cap Groups(w) # {}
\* (weak) logs for the children of a pending resize, by the names that these designs give them
Early(w) == LET mine(n) == UNION {Rows(wr[w].req, wr[w].home, s) : s \in rz[n].src}
                rest(n, name, v) == {f \in {File(g, name, v, 0, {r \in mine(n) : Target[n][r[2]] = g}) : g \in Children(n)} :
                                       f.rows # {} /\ ~IsThere(f)}
                pending == {n \in R : Open(n) /\ rz[n].src \cap Groups(w) # {}} IN
            (IF "dual" \in Weak THEN UNION {rest(n, rz[n].c, 100 + wr[w].req) : n \in pending} ELSE {})
            \cup (IF "early" \in Weak THEN UNION {rest(n, wr[w].req, 1) : n \in {m \in pending : Bases(m) = {}}} ELSE {})
Mirror(w) == /\ wr[w].pc = "written" /\ ~wr[w].dead /\ Early(w) # {} /\ Create(First(Early(w)))
             /\ UNCHANGED <<now, wr, rz, ex, done>>
Verdict(w) == IF wr[w].dead THEN "dead"
              ELSE IF \E n \in Undoes(w) : MayCancel(n) THEN "cancel"
              ELSE IF Undoes(w) \cup ClosedTo(w) # {} THEN "help"
              ELSE IF IsOlder(w) \/ Orphan(w) THEN "again"
              ELSE IF Born(w) # {} THEN "born"
              ELSE IF IsReplaced(w) THEN IF wr[w].all THEN "again" ELSE "move"
              ELSE IF IsUnder(w) \/ IsOvertaken(w) THEN "again"
              ELSE "complete"
Decide(w) ==
  /\ wr[w].pc = "written" /\ (wr[w].dead \/ Early(w) = {}) /\ UNCHANGED <<ex, files>>
  /\ LET said == Verdict(w) IN
     /\ CASE said = "dead"     -> SetW(w, [Idle EXCEPT !.pc = "ended", !.dead = TRUE])
          [] said = "cancel"   -> UNCHANGED wr
          [] said = "help"     -> IF "waits" \in Weak THEN UNCHANGED wr
                                  ELSE \E n \in Undoes(w) \cup ClosedTo(w) : SetW(w, [wr[w] EXCEPT !.pc = "help", !.of = n, !.whole = Whole(n)])
          [] said = "again"    -> SetW(w, Idle)
          [] said = "move"     -> SetW(w, [AsPlaced(w) EXCEPT !.was = IF "by name" \in Weak THEN Touched(w) ELSE {}])
          [] said = "born"     -> SetW(w, [wr[w] EXCEPT !.home = [k \in DOMAIN wr[w].home |->
                                                IF k \in Born(w) THEN wr[w].kids[k] ELSE wr[w].home[k]],
                                             !.kids = [k \in DOMAIN wr[w].kids \ Born(w) |-> wr[w].kids[k]]])
          [] said = "complete" -> SetW(w, [Idle EXCEPT !.pc = "ended"])
     /\ IF said = "cancel" THEN \E n \in {m \in Undoes(w) : MayCancel(m)} : rz' = [rz EXCEPT ![n].state = "aborted"] ELSE UNCHANGED rz
     /\ IF said = "complete"
        THEN done' = done \cup {[w |-> wr[w].req, c |-> now, home |-> wr[w].home, kids |-> wr[w].kids, all |-> wr[w].all]} /\ now' = now + 1
        ELSE UNCHANGED <<done, now>>
Back(w) == [wr[w] EXCEPT !.pc = "written", !.of = 0, !.todo = None, !.whole = {}, !.made = {}]
HelpLook(w) == LET n == wr[w].of IN
               /\ wr[w].pc = "help"
               /\ IF ~Open(n) THEN SetW(w, Back(w))
                  ELSE IF Bases(n) # {} THEN SetW(w, [wr[w] EXCEPT !.pc = "copy", !.todo = First(Bases(n))])
                  ELSE IF AllCopied(n, wr[w]) THEN SetW(w, [wr[w] EXCEPT !.pc = "ready"])
                  ELSE \E f \in ToMake(n, wr[w]) : SetW(w, [wr[w] EXCEPT !.pc = "copy", !.todo = f])
               /\ UNCHANGED <<now, rz, ex, files, done>>
HelpCopy(w) == /\ wr[w].pc = "copy" /\ Create(wr[w].todo)
               /\ SetW(w, [WithCopy(wr[w].of, wr[w]) EXCEPT !.pc = "help", !.todo = None])
               /\ UNCHANGED <<now, rz, ex, done>>
HelpFinish(w) == /\ wr[w].pc = "ready" /\ SetW(w, Back(w))
                 /\ IF MayComplete(wr[w].of, wr[w]) THEN FinishIt(wr[w].of) ELSE UNCHANGED <<now, rz>>
                 /\ UNCHANGED <<ex, files, done>>
Writer(w) == Begin(w) \/ Place(w) \/ Write(w) \/ Mirror(w) \/ Decide(w) \/ HelpLook(w) \/ HelpCopy(w) \/ HelpFinish(w)
\* -- aborts, by any process: heartbeats expire at will
Expire(w) == /\ wr[w].pc \notin {"idle", "ended"} /\ ~wr[w].dead /\ Cardinality({v \in W : wr[v].dead}) < Expired
             /\ SetW(w, [wr[w] EXCEPT !.dead = TRUE]) /\ UNCHANGED <<now, rz, ex, files, done>>
Cancel(n) == /\ MayCancel(n) /\ Cardinality({m \in R : rz[m].state = "aborted"}) < Cancelled
             /\ rz' = [rz EXCEPT ![n].state = "aborted"] /\ UNCHANGED <<now, wr, ex, files, done>>
\* what lies in children of an aborted resize is of no use, and goes at some time (in virtual runs)
Rubbish(n) == {f \in files : f.g \in Children(n)}
Remove(n) == /\ Virtual /\ rz[n].state = "aborted" /\ Rubbish(n) # {} /\ files' = files \ Rubbish(n)
             /\ UNCHANGED <<now, wr, rz, ex, done>>
Alone(w)  == Live /\ solo = None /\ solo' = w /\ UNCHANGED <<now, wr, rz, ex, files, done>>
Everybody == (\E w \in W : Writer(w) \/ Expire(w)) \/ (\E e \in E : Executor(e)) \/ \E n \in R : Cancel(n) \/ Remove(n)
OnlyOne   == solo # None /\ Writer(solo) /\ UNCHANGED solo
Next == (solo = None /\ Everybody /\ UNCHANGED solo) \/ OnlyOne \/ \E w \in W : Alone(w)
Spec == Init /\ [][Next]_vars /\ WF_vars(OnlyOne)
Sym  == Permutations(W) \cup Permutations(E)
\* -- promises
Count(r, fs) == Cardinality({f \in fs : r \in f.rows})
\* of the writes of a key, those that no overwrite removed are read once, the others not at all
OnceAt(at) == LET shown == Shown(at) IN \A k \in Keys :
              LET xs   == {x \in done : x.c <= at /\ k \in DOMAIN x.home}
                  kept == {x \in xs : \A y \in xs : y.all => y.c <= x.c} IN
              \A x \in xs : Count(<<x.w, k>>, shown) = IF x \in kept THEN 1 ELSE 0
N1_Once      == OnceAt(now)
N2_Completed == \A f \in Shown(now) : \A r \in f.rows : r[1] \in Names(now)              \* by names
N3_AsOf      == \A at \in Times : OnceAt(at) /\ \A f \in Shown(at) : f.v = 0 => \A r \in f.rows : r[1] \in Names(at)
N4_Children  == \A n \in R : \A f \in files : rz[n].state # "none" /\ f.g \in Children(n) =>
                  IF Done(n) THEN (f.t >= rz[n].c \/ f.t \notin Names(now)) ELSE f.t = rz[n].c \/ (Virtual /\ f.t > rz[n].c)
N5_Copies    == \A n \in R : \A f \in files : f.t = rz[n].c /\ f.g \in Children(n) => \A r \in f.rows : r[1] \in Names(now)
N7_Closed    == [][\A n \in R : rz[n].state = "closed" => \A x \in done' \ done : Range(OwnHome(x)) \cap rz[n].src = {}]_vars
Closable     == \A n \in R : rz[n].state = "closed" => Bases(n) = {}                     \* a helper finds the base files
\* of the writes of a key, the one that completed last counts last
N9_Order == \A at \in Times : \A k \in Keys :
  LET xs == {x \in done : x.c <= at /\ k \in DOMAIN x.home} IN xs # {} =>
    LET last  == CHOOSE x \in xs : \A y \in xs : y.c <= x.c
        named == Names(at)
        fs    == {f \in Shown(at) : \E r \in f.rows : r[2] = k /\ (f.v = 0 \/ r[1] \in named)}
        own   == {f \in fs : <<last.w, k>> \in f.rows} IN
    \A f \in fs \ own : f.v = 0 \/ \E h \in own : h.v # 0 /\ Before(f, h)
\* of two writes of a key, neither completed while the other was pending
Occ == \A x, y \in done : x.w < y.c /\ y.c < x.c /\ y.w # x.w => DOMAIN x.home \cap DOMAIN y.home = {}
WriterEnds == \A w \in W : (solo = w) ~> (wr[w].pc = "ended")
\* -- witnesses
NeverMoved  == ~\E x \in done : \E f \in files : f.t = x.w /\ f.g \notin Range(x.home)
NeverBorn   == ~\E x \in done : \E f, h \in files : f.t = x.w /\ h.t = x.w /\ f.refs # {} /\ <<h.g, h.p>> \in f.refs
                                    /\ h.g \in Range(x.home) /\ h.rows # {}
NeverFollowed == ~\E n \in R : Done(n) /\ \E x \in done : x.c < rz[n].t /\ DOMAIN x.kids # {}
NeverHelped == ~\E w \in W : wr[w].pc = "ready" /\ \A e \in E : ex[e].pc = "idle"
NeverLate   == ~\E e \in E : ex[e].pc = "copy" /\ rz[ex[e].of].state = "aborted"
NeverBoth   == ~\E n \in R : Done(n) /\ \E f, h \in files : /\ {f.g, h.g} \subseteq Children(n) /\ f.g = h.g
                                                            /\ f.t = rz[n].c /\ f.v # 0 /\ h.t \in Names(now) /\ h.t # f.t
===============================================================================
