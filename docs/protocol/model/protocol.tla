------------------------------ MODULE protocol ------------------------------
(***************************************************************************)
(* Commit protocol of pyhudi on a Hudi 1.x timeline.                        *)
(* P = writers that follow the decision log (numbered, create-if-absent).   *)
(* J = plain Hudi writers: table lock + "inflight exists" check only.       *)
(* One action = one storage operation, except listings, which are one step. *)
(* A zombie needs no action of its own: any writer may stay between two of  *)
(* its steps for ever, or wake up after everybody else has moved on.        *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  P, J,          \* the two sets of writers
  MaxInst,       \* how many write instants may be begun in total
  MaxCrash,      \* how many crashes in total
  Jumps,         \* a clock reading is (highest time known to the reader) + one of these
  NB,            \* TRUE: non-blocking (no conflict check), FALSE: OCC
  UseLock,       \* P takes the table lock around every append (J always does)
  LeaseLoss,     \* TRUE: a lease may vanish at any moment; FALSE: only after its holder crashed
  SettleFirst,   \* P finishes the last entry of the log before adding one
  TimeEarly,     \* (weak) P picks the time before it reads the tail and keeps it over retries
  AbortInLog,    \* P decides a rollback in the log; FALSE (weak): straight on the timeline
  PassRule,      \* P voids an entry that a foreign writer has overtaken
  Recheck,       \* J looks whether it still holds the lock just before it publishes
  Archive,       \* "off" | "naive" | "grace" | "late" (weak with Fold): archival removes completed files from the active timeline
  Outcome,       \* J uses a per-instant outcome slot (create-if-absent) for commit versus rollback
  Fold,          \* P may take the timeline from the entries of the log in place of a listing, at each append anew
  ListEarly,     \* (weak) P lists before it reads the tail from which it folds, and so misses what was decided between
  SweepMarked,   \* the sweep also removes late data files, by the kept markers; FALSE (weak): timeline files only
  None

Inst == 1..MaxInst
W    == P \cup J
Max(a, b) == IF a > b THEN a ELSE b

VARIABLES
  log,     \* sequence of entries [k, i, t, v]: the numbered objects
  nid,     \* instants begun so far
  R,       \* requested time per instant, 0 = none
  reqF, infF,          \* instants that have a .requested / .inflight file
  comp,                \* completed files [i, c]
  rbReq, rbDone,       \* rollback plans and completed rollbacks [i, t]
  data,                \* "no" | "yes" | "del"
  hb,                  \* heartbeat looks alive
  out,                 \* outcome slot: "none" | "C" | "A"
  lock,                \* holder or None
  arch,                \* completed instants moved to the archived timeline
  hi, hiC, seen,       \* highest time / completion ever visible, instants ever visible
  bad,                 \* names of broken promises
  pc, job, cur, n, mine, it, crashes

tl   == <<reqF, infF, comp, rbReq, rbDone, data, hi, hiC, seen, bad>>
loc  == <<pc, job, cur, n, mine, it>>
vars == <<log, nid, R, hb, out, lock, crashes, arch, tl, loc>>

NoJob == [k |-> "none", i |-> 0]
NoIt  == [k |-> "none", i |-> 0, t |-> 0, v |-> 0]

Init ==
  /\ log = <<>> /\ nid = 0 /\ R = [i \in Inst |-> 0]
  /\ reqF = {} /\ infF = {} /\ comp = {} /\ arch = {} /\ rbReq = {} /\ rbDone = {}
  /\ data = [i \in Inst |-> "no"] /\ hb = [i \in Inst |-> FALSE] /\ out = [i \in Inst |-> "none"]
  /\ lock = None /\ hi = 0 /\ hiC = 0 /\ seen = {} /\ bad = {}
  /\ pc = [w \in W |-> "idle"] /\ job = [w \in W |-> NoJob] /\ cur = [w \in W |-> 0]
  /\ n = [w \in W |-> 0] /\ mine = [w \in W |-> 0] /\ it = [w \in W |-> NoIt] /\ crashes = 0

----------------------------------------------------------------------------
\* What a listing of the timeline shows
All           == comp \cup arch
Completed(i)  == \E x \in All    : x.i = i
Planned(i)    == \E x \in rbReq  : x.i = i
RolledBack(i) == \E x \in rbDone : x.i = i
Pending(i)    == (i \in reqF \/ i \in infF) /\ ~Completed(i)
Failed(i)     == Pending(i) /\ ~hb[i] /\ ~Planned(i)
Conflict(i)   == ~NB /\ \E x \in All : x.i # i /\ x.c > R[i]
LogTop        == IF log = <<>> THEN 0
                 ELSE CHOOSE m \in {log[k].t : k \in 1..Len(log)} : \A k \in 1..Len(log) : log[k].t <= m
InLog(kind, i) == \E k \in 1..Len(log) : log[k].k = kind /\ log[k].i = i
Voided(m)      == \E k \in 1..Len(log) : log[k].k = "void" /\ log[k].v = m
Ids(s)         == {x.i : x \in s}

\* The same, folded from the entries 1..m as if each of them were applied. An archived instant stays completed
Carried(m, kind) == {log[k] : k \in {j \in 1..m : log[j].k = kind /\ ~Voided(j)}}
FoldBegun(m)     == Ids(Carried(m, "begin"))
FoldComp(m)      == {[i |-> e.i, c |-> e.t] : e \in Carried(m, "commit")}
FoldPlan(m)      == {[i |-> e.i, t |-> e.t] : e \in Carried(m, "abort")}
FoldUndone(m)    == {[i |-> e.i, t |-> e.t] : e \in Carried(m, "rbdone")}
FoldOpen(m)      == FoldBegun(m) \ (Ids(FoldComp(m)) \cup Ids(FoldPlan(m)))
FoldTop(m)       == IF m = 0 THEN 0
                    ELSE CHOOSE t \in {log[k].t : k \in 1..m} : \A k \in 1..m : log[k].t <= t

\* What an append is validated against. A fold knows no entry after the tail that its writer has read
Listing == [comp |-> All, plan |-> Ids(rbReq), undone |-> Ids(rbDone), open |-> {i \in Inst : Pending(i) /\ ~Planned(i)},
            aborted |-> {i \in Inst : InLog("abort", i)},
            undoing |-> {i \in Inst : \E k \in 1..Len(log) : log[k].k = "abort" /\ log[k].i = i /\ ~Voided(k)},
            top |-> Max(hi, LogTop)]
FoldAt(m) == [comp |-> FoldComp(m), plan |-> Ids(FoldPlan(m)), undone |-> Ids(FoldUndone(m)), open |-> FoldOpen(m),
              aborted |-> Ids(FoldPlan(m)), undoing |-> Ids(FoldPlan(m)), top |-> FoldTop(m)]
Views(w)  == {Listing} \cup (IF Fold THEN {FoldAt(n[w])} ELSE {})
                       \cup (IF ListEarly /\ n[w] # 0 THEN {FoldAt(n[w] - 1)} ELSE {})

\* Effects on the timeline
Publish(t)   == /\ hi' = Max(hi, t)
PutReq(i)    == /\ reqF' = reqF \cup {i} /\ seen' = seen \cup {i}
                /\ IF i \in seen THEN UNCHANGED <<hi, bad>>
                   ELSE Publish(R[i]) /\ bad' = bad \cup (IF R[i] <= hi THEN {"time"} ELSE {})
                /\ UNCHANGED <<infF, comp, rbReq, rbDone, data, hiC>>
PutComp(i, c) == /\ IF [i |-> i, c |-> c] \in comp THEN UNCHANGED <<comp, hi, hiC, bad>>
                    ELSE /\ comp' = comp \cup {[i |-> i, c |-> c]} /\ Publish(c) /\ hiC' = Max(hiC, c)
                         /\ bad' = bad \cup (IF c <= hi THEN {"time"} ELSE {})
                                       \cup (IF c <= hiC THEN {"stable"} ELSE {})
                 /\ UNCHANGED <<reqF, infF, rbReq, rbDone, data, seen>>
PutRbReq(i, t) == /\ IF [i |-> i, t |-> t] \in rbReq THEN UNCHANGED <<rbReq, hi, bad>>
                     ELSE rbReq' = rbReq \cup {[i |-> i, t |-> t]} /\ Publish(t)
                          /\ bad' = bad \cup (IF t <= hi THEN {"time"} ELSE {})
                  /\ UNCHANGED <<reqF, infF, comp, rbDone, data, hiC, seen>>
PutRbDone(i, t) == /\ IF [i |-> i, t |-> t] \in rbDone THEN UNCHANGED <<rbDone, hi, bad>>
                      ELSE rbDone' = rbDone \cup {[i |-> i, t |-> t]} /\ Publish(t)
                           /\ bad' = bad \cup (IF t <= hi THEN {"time"} ELSE {})
                   /\ UNCHANGED <<comp, rbReq, data, hiC, seen>>

----------------------------------------------------------------------------
\* The decision log: writers P
Entry == {"tail", "check", "do", "do2", "valid", "append"}
Go(w, j) == /\ job' = [job EXCEPT ![w] = j]
            /\ pc'  = [pc EXCEPT ![w] = IF UseLock THEN "lock" ELSE "tail"]
Early(w, k, i, x) == it' = [it EXCEPT ![w] = IF TimeEarly THEN [k |-> k, i |-> i, t |-> Max(hi, LogTop) + x, v |-> 0] ELSE NoIt]

StartBegin(w) == /\ pc[w] = "idle" /\ nid < MaxInst
                 /\ \E x \in (IF TimeEarly THEN Jumps ELSE {1}) : Early(w, "begin", 0, x)
                 /\ Go(w, [k |-> "begin", i |-> 0]) /\ mine' = [mine EXCEPT ![w] = 0]
                 /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, cur, n>>
StartCommit(w) == /\ pc[w] = "ready"
                  /\ \E x \in (IF TimeEarly THEN Jumps ELSE {1}) : Early(w, "commit", cur[w], x)
                  /\ Go(w, [k |-> "commit", i |-> cur[w]]) /\ mine' = [mine EXCEPT ![w] = 0]
                  /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, cur, n>>
StartAbort(w) == \E i \in Inst :
                  /\ pc[w] = "idle" /\ Failed(i) /\ AbortInLog
                  /\ \E x \in (IF TimeEarly THEN Jumps ELSE {1}) : Early(w, "abort", i, x)
                  /\ Go(w, [k |-> "abort", i |-> i]) /\ mine' = [mine EXCEPT ![w] = 0]
                  /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, cur, n>>
\* weak variant: the rollback is planned on the timeline, the log is only read for the time
PlanOutside(w) == \E i \in Inst :
                  /\ pc[w] = "idle" /\ ~AbortInLog /\ Failed(i)
                  /\ \E x \in Jumps : PutRbReq(i, Max(hi, LogTop) + x)
                  /\ job' = [job EXCEPT ![w] = [k |-> "rbdone", i |-> i]] /\ pc' = [pc EXCEPT ![w] = "rbx1"]
                  /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, cur, n, mine, it>>
Resume(w) == \E i \in Inst :
                  /\ pc[w] = "idle" /\ Planned(i) /\ ~RolledBack(i)
                  /\ job' = [job EXCEPT ![w] = [k |-> "rbdone", i |-> i]] /\ pc' = [pc EXCEPT ![w] = "rbx1"]
                  /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, cur, n, mine, it>>
Sweep(w) == \E i \in Inst :        \* ghost files of an instant whose rollback is complete: no new instant.
                                   \* late data files are found by their markers, which a rollback keeps
                  /\ pc[w] = "idle" /\ (i \in reqF \/ i \in infF \/ (SweepMarked /\ data[i] = "yes")) /\ RolledBack(i) /\ ~Completed(i)
                  /\ reqF' = reqF \ {i} /\ infF' = infF \ {i}
                  /\ data' = [data EXCEPT ![i] = IF @ = "yes" /\ SweepMarked THEN "del" ELSE @]
                  /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, comp, rbReq, rbDone, hi, hiC, seen, bad, loc>>

Take(w) == /\ pc[w] = "lock" /\ lock = None /\ lock' = w
           /\ pc' = [pc EXCEPT ![w] = "tail"]
           /\ UNCHANGED <<arch, log, nid, R, hb, out, crashes, tl, job, cur, n, mine, it>>
Free(w) == lock' = IF lock = w THEN None ELSE lock

Done(w) ==
  /\ Free(w) /\ mine' = [mine EXCEPT ![w] = 0] /\ it' = [it EXCEPT ![w] = NoIt] /\ n' = [n EXCEPT ![w] = 0]
  /\ CASE job[w].k = "begin"  -> /\ pc' = [pc EXCEPT ![w] = "work"]
                                 /\ UNCHANGED <<cur, hb, job>>
       [] job[w].k = "commit" -> /\ pc' = [pc EXCEPT ![w] = "idle"] /\ hb' = [hb EXCEPT ![cur[w]] = FALSE]
                                 /\ cur' = [cur EXCEPT ![w] = 0] /\ job' = [job EXCEPT ![w] = NoJob]
       [] job[w].k = "abort"  -> /\ pc' = [pc EXCEPT ![w] = "rbx1"]
                                 /\ job' = [job EXCEPT ![w] = [k |-> "rbdone", i |-> job[w].i]]
                                 /\ UNCHANGED <<cur, hb>>
       [] OTHER               -> /\ pc' = [pc EXCEPT ![w] = "idle"] /\ job' = [job EXCEPT ![w] = NoJob]
                                 /\ UNCHANGED <<cur, hb>>
Drop(w) ==      \* the job is refused: conflict, already decided, rolled back
  /\ Free(w) /\ mine' = [mine EXCEPT ![w] = 0] /\ it' = [it EXCEPT ![w] = NoIt] /\ n' = [n EXCEPT ![w] = 0]
  /\ pc' = [pc EXCEPT ![w] = "idle"] /\ job' = [job EXCEPT ![w] = NoJob]
  /\ IF job[w].k = "commit" THEN hb' = [hb EXCEPT ![cur[w]] = FALSE] /\ cur' = [cur EXCEPT ![w] = 0]
     ELSE UNCHANGED <<hb, cur>>

ReadTail(w) ==      \* list the log
  /\ pc[w] = "tail"
  /\ IF mine[w] # 0 /\ ~Voided(mine[w])
     THEN Done(w) /\ UNCHANGED <<arch, log, nid, R, out, crashes, tl>>
     ELSE /\ n' = [n EXCEPT ![w] = Len(log)] /\ mine' = [mine EXCEPT ![w] = 0]
          /\ pc' = [pc EXCEPT ![w] = "check"]
          /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, job, cur, it>>

Present(e) == CASE e.k = "begin"  -> e.i \in reqF
                [] e.k = "commit" -> [i |-> e.i, c |-> e.t] \in comp
                [] e.k = "abort"  -> [i |-> e.i, t |-> e.t] \in rbReq
                [] e.k = "rbdone" -> [i |-> e.i, t |-> e.t] \in rbDone
                [] OTHER          -> TRUE
\* A foreign writer went past the entry, or took the instant away
Passed(e) == PassRule /\ \/ hi >= e.t
                         \/ e.k = "commit" /\ (e.i \notin infF \/ Planned(e.i))
                         \/ e.k = "abort"  /\ (Completed(e.i) \/ Planned(e.i))
                         \/ e.k = "rbdone" /\ RolledBack(e.i)
\* Is the last entry applied? A listing also shows whether it was superseded; a look at its one name does not
Check(w) ==
  /\ pc[w] = "check"
  /\ IF n[w] = 0 \/ (~SettleFirst /\ n[w] # mine[w]) \/ (n[w] > 0 /\ Present(log[n[w]]))
     THEN IF n[w] # 0 /\ n[w] = mine[w]
          THEN Done(w) /\ UNCHANGED <<arch, log, nid, R, out, crashes, tl>>
          ELSE /\ pc' = [pc EXCEPT ![w] = "valid"]
               /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, job, cur, n, mine, it>>
     ELSE \E listed \in (IF Fold THEN BOOLEAN ELSE {TRUE}) :
          IF listed /\ Passed(log[n[w]])
          THEN /\ it' = [it EXCEPT ![w] = [k |-> "void", i |-> log[n[w]].i, t |-> 0, v |-> n[w]]]
               /\ pc' = [pc EXCEPT ![w] = "append"]
               /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, job, cur, n, mine>>
          ELSE /\ pc' = [pc EXCEPT ![w] = "do"]
               /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, job, cur, n, mine, it>>

AfterDo(w) == IF n[w] = mine[w] THEN Done(w)
              ELSE pc' = [pc EXCEPT ![w] = "valid"] /\ UNCHANGED <<hb, lock, job, cur, n, mine, it>>
Do(w) ==        \* carry the entry out (create-if-absent of a name and bytes fixed by the entry)
  /\ pc[w] = "do"
  /\ LET e == log[n[w]] IN
     CASE e.k = "begin"  -> PutReq(e.i) /\ AfterDo(w)
       [] e.k = "commit" -> PutComp(e.i, e.t) /\ AfterDo(w)
       [] e.k = "rbdone" -> PutRbDone(e.i, e.t) /\ UNCHANGED <<reqF, infF>> /\ AfterDo(w)
       [] e.k = "abort"  -> /\ infF' = infF \ {e.i} /\ pc' = [pc EXCEPT ![w] = "do2"]
                            /\ UNCHANGED <<reqF, comp, rbReq, rbDone, data, hi, hiC, seen, bad>>
                            /\ UNCHANGED <<hb, lock, job, cur, n, mine, it>>
  /\ UNCHANGED <<arch, log, nid, R, out, crashes>>
Do2(w) ==
  /\ pc[w] = "do2" /\ PutRbReq(log[n[w]].i, log[n[w]].t) /\ AfterDo(w)
  /\ UNCHANGED <<arch, log, nid, R, out, crashes>>

Legal(w, s) == LET i == job[w].i IN
  CASE job[w].k = "begin"  -> nid < MaxInst
    [] job[w].k = "commit" -> /\ i \in infF /\ i \notin Ids(s.comp) /\ i \notin s.plan /\ i \notin s.aborted
                              /\ NB \/ ~\E x \in s.comp : x.i # i /\ x.c > R[i]
    [] job[w].k = "abort"  -> i \in s.open /\ ~hb[i] /\ i \notin s.undoing
    [] job[w].k = "rbdone" -> i \in s.plan /\ i \notin s.undone
    [] OTHER -> FALSE
Valid(w) ==     \* list the timeline again or fold the log, all checks, pick the time
  /\ pc[w] = "valid"
  /\ \E s \in Views(w) :
     IF Legal(w, s)
     THEN /\ \E x \in (IF TimeEarly THEN {1} ELSE Jumps) :
               it' = [it EXCEPT ![w] = [k |-> job[w].k, i |-> job[w].i, v |-> 0,
                       t |-> IF TimeEarly /\ @.k = job[w].k THEN @.t ELSE s.top + x]]
          /\ pc' = [pc EXCEPT ![w] = "append"]
          /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, job, cur, n, mine>>
     ELSE Drop(w) /\ UNCHANGED <<arch, log, nid, R, out, crashes, tl>>

AddEntry(w) ==    \* create-if-absent of entry n+1
  /\ pc[w] = "append"
  /\ IF Len(log) # n[w]
     THEN /\ pc' = [pc EXCEPT ![w] = "tail"]
          /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, job, cur, n, mine, it>>
     ELSE IF it[w].k = "void"
     THEN /\ log' = Append(log, it[w]) /\ n' = [n EXCEPT ![w] = @ + 1] /\ pc' = [pc EXCEPT ![w] = "check"]
          /\ mine' = [mine EXCEPT ![w] = IF @ = n[w] THEN 0 ELSE @]
          /\ UNCHANGED <<arch, nid, R, hb, out, lock, crashes, tl, job, cur, it>>
     ELSE IF it[w].k = "begin"
     THEN IF nid = MaxInst THEN Drop(w) /\ UNCHANGED <<arch, log, nid, R, out, crashes, tl>>
          ELSE /\ nid' = nid + 1 /\ R' = [R EXCEPT ![nid + 1] = it[w].t] /\ hb' = [hb EXCEPT ![nid + 1] = TRUE]
               /\ cur' = [cur EXCEPT ![w] = nid + 1]
               /\ log' = Append(log, [it[w] EXCEPT !.i = nid + 1])
               /\ n' = [n EXCEPT ![w] = @ + 1] /\ mine' = [mine EXCEPT ![w] = n[w] + 1]
               /\ pc' = [pc EXCEPT ![w] = "check"]
               /\ UNCHANGED <<arch, out, lock, crashes, tl, job, it>>
     ELSE /\ log' = Append(log, it[w])
          /\ n' = [n EXCEPT ![w] = @ + 1] /\ mine' = [mine EXCEPT ![w] = n[w] + 1]
          /\ pc' = [pc EXCEPT ![w] = "check"]
          /\ UNCHANGED <<arch, nid, R, hb, out, lock, crashes, tl, job, cur, it>>

Work(w) ==      \* inflight file, markers, data files
  /\ pc[w] = "work" /\ infF' = infF \cup {cur[w]} /\ data' = [data EXCEPT ![cur[w]] = "yes"]
  /\ pc' = [pc EXCEPT ![w] = "ready"]
  /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, reqF, comp, rbReq, rbDone, hi, hiC, seen, bad, job, cur, n, mine, it>>
Rbx1(w) ==      \* delete data files
  /\ pc[w] = "rbx1" /\ data' = [data EXCEPT ![job[w].i] = IF @ = "yes" THEN "del" ELSE @]
  /\ pc' = [pc EXCEPT ![w] = "rbx2"]
  /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, reqF, infF, comp, rbReq, rbDone, hi, hiC, seen, bad, job, cur, n, mine, it>>
Rbx2(w) ==      \* delete inflight and requested
  /\ pc[w] = "rbx2" /\ infF' = infF \ {job[w].i} /\ reqF' = reqF \ {job[w].i}
  /\ Go(w, job[w]) /\ mine' = [mine EXCEPT ![w] = 0] /\ it' = [it EXCEPT ![w] = NoIt]
  /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, comp, rbReq, rbDone, data, hi, hiC, seen, bad, cur, n>>

PStep(w) == \/ StartCommit(w) \/ StartAbort(w) \/ PlanOutside(w) \/ Resume(w) \/ Sweep(w) \/ Take(w)
            \/ ReadTail(w) \/ Check(w) \/ Do(w) \/ Do2(w) \/ Valid(w) \/ AddEntry(w)
            \/ Work(w) \/ Rbx1(w) \/ Rbx2(w)

----------------------------------------------------------------------------
\* Plain Hudi: lock, list, pick the time, check inflight, create
JGo(w, j) == job' = [job EXCEPT ![w] = j] /\ pc' = [pc EXCEPT ![w] = "jlock"]
JStartBegin(w) == /\ pc[w] = "idle" /\ nid < MaxInst /\ JGo(w, [k |-> "begin", i |-> 0])
                  /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, cur, n, mine, it>>
JStart(w) == \/ /\ pc[w] = "jready" /\ hb[cur[w]] /\ JGo(w, [k |-> "commit", i |-> cur[w]])   \* own heartbeat, before the lock
                /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, cur, n, mine, it>>
             \/ /\ pc[w] \in {"jwork", "jready"} /\ ~hb[cur[w]]                                  \* gives up
                /\ pc' = [pc EXCEPT ![w] = "idle"] /\ cur' = [cur EXCEPT ![w] = 0]
                /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, job, n, mine, it>>
             \/ /\ pc[w] = "idle" /\ \E i \in Inst : Failed(i) /\ JGo(w, [k |-> "abort", i |-> i])
                /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, cur, n, mine, it>>
JResume(w) == \E i \in Inst :
                /\ pc[w] = "idle" /\ Planned(i) /\ ~RolledBack(i)
                /\ job' = [job EXCEPT ![w] = [k |-> "rbdone", i |-> i]] /\ pc' = [pc EXCEPT ![w] = "jrb"]
                /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, cur, n, mine, it>>
JLock(w) == /\ pc[w] = "jlock" /\ lock = None /\ lock' = w /\ pc' = [pc EXCEPT ![w] = "jpick"]
            /\ UNCHANGED <<arch, log, nid, R, hb, out, crashes, tl, job, cur, n, mine, it>>
JLegal(w) == LET i == job[w].i IN
  CASE job[w].k = "begin"  -> nid < MaxInst
    [] job[w].k = "commit" -> i \in infF /\ ~Completed(i) /\ ~Conflict(i)
    [] job[w].k = "abort"  -> Failed(i)
    [] job[w].k = "rbdone" -> Planned(i) /\ ~RolledBack(i)
    [] OTHER -> FALSE
JPick(w) == /\ pc[w] = "jpick"
            /\ IF JLegal(w)
               THEN /\ \E x \in Jumps : it' = [it EXCEPT ![w] = [k |-> job[w].k, i |-> job[w].i, t |-> hi + x, v |-> 0]]
                    /\ pc' = [pc EXCEPT ![w] = IF Outcome /\ job[w].k \in {"commit", "abort"} THEN "jout"
                                               ELSE IF Recheck THEN "jre" ELSE "jput"]
                    /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, job, cur, n, mine>>
               ELSE Drop(w) /\ UNCHANGED <<arch, log, nid, R, out, crashes, tl>>
JOut(w) == /\ pc[w] = "jout"
           /\ LET i == job[w].i
                  v == IF job[w].k = "commit" THEN "C" ELSE "A" IN
              IF out[i] \in {"none", v}
              THEN /\ out' = [out EXCEPT ![i] = v]
                   /\ pc' = [pc EXCEPT ![w] = IF Recheck THEN "jre" ELSE "jput"]
                   /\ UNCHANGED <<arch, log, nid, R, hb, lock, crashes, tl, job, cur, n, mine, it>>
              ELSE Drop(w) /\ UNCHANGED <<arch, log, nid, R, out, crashes, tl>>
JRe(w) == /\ pc[w] = "jre"
          /\ IF lock = w THEN /\ pc' = [pc EXCEPT ![w] = "jput"]
                              /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, tl, job, cur, n, mine, it>>
             ELSE Drop(w) /\ UNCHANGED <<arch, log, nid, R, out, crashes, tl>>
JEnd(w, next, j) == /\ Free(w) /\ pc' = [pc EXCEPT ![w] = next] /\ job' = [job EXCEPT ![w] = j]
                    /\ it' = [it EXCEPT ![w] = NoIt] /\ UNCHANGED <<n, mine>>
JPut(w) ==
  /\ pc[w] = "jput"
  /\ LET i == job[w].i
         t == it[w].t IN
     CASE job[w].k = "begin" ->
            IF nid = MaxInst THEN Drop(w) /\ UNCHANGED <<nid, R, tl>>
            ELSE /\ nid' = nid + 1 /\ R' = [R EXCEPT ![nid + 1] = t] /\ hb' = [hb EXCEPT ![nid + 1] = TRUE]
                 /\ cur' = [cur EXCEPT ![w] = nid + 1]
                 /\ reqF' = reqF \cup {nid + 1} /\ seen' = seen \cup {nid + 1}
                 /\ Publish(t) /\ bad' = bad \cup (IF t <= hi THEN {"time"} ELSE {})
                 /\ UNCHANGED <<infF, comp, rbReq, rbDone, data, hiC>>
                 /\ JEnd(w, "jwork", NoJob)
       [] job[w].k = "commit" ->
            /\ PutComp(i, t) /\ hb' = [hb EXCEPT ![i] = FALSE] /\ cur' = [cur EXCEPT ![w] = 0]
            /\ JEnd(w, "idle", NoJob) /\ UNCHANGED <<nid, R>>
       [] job[w].k = "abort" ->
            /\ PutRbReq(i, t) /\ JEnd(w, "jrb", [k |-> "rbdone", i |-> i]) /\ UNCHANGED <<nid, R, hb, cur>>
       [] job[w].k = "rbdone" ->
            /\ PutRbDone(i, t) /\ infF' = infF \ {i} /\ reqF' = reqF \ {i}
            /\ JEnd(w, "idle", NoJob) /\ UNCHANGED <<nid, R, hb, cur>>
  /\ UNCHANGED <<arch, log, out, crashes>>
JWork(w) == /\ pc[w] = "jwork" /\ cur[w] \in reqF /\ infF' = infF \cup {cur[w]} /\ data' = [data EXCEPT ![cur[w]] = "yes"]
            /\ pc' = [pc EXCEPT ![w] = "jready"]
            /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, reqF, comp, rbReq, rbDone, hi, hiC, seen, bad, job, cur, n, mine, it>>
JRb(w) ==   /\ pc[w] = "jrb" /\ data' = [data EXCEPT ![job[w].i] = IF @ = "yes" THEN "del" ELSE @]
            /\ JGo(w, job[w])
            /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, crashes, reqF, infF, comp, rbReq, rbDone, hi, hiC, seen, bad, cur, n, mine, it>>
JStep(w) == JStart(w) \/ JResume(w) \/ JLock(w) \/ JPick(w) \/ JOut(w) \/ JRe(w) \/ JPut(w) \/ JWork(w) \/ JRb(w)

----------------------------------------------------------------------------
\* Faults
Critical == Entry \cup {"jpick", "jout", "jre", "jput"}
Crash(w) == /\ crashes < MaxCrash /\ pc[w] # "idle" /\ crashes' = crashes + 1
            /\ pc' = [pc EXCEPT ![w] = "idle"] /\ job' = [job EXCEPT ![w] = NoJob] /\ cur' = [cur EXCEPT ![w] = 0]
            /\ n' = [n EXCEPT ![w] = 0] /\ mine' = [mine EXCEPT ![w] = 0] /\ it' = [it EXCEPT ![w] = NoIt]
            /\ UNCHANGED <<arch, log, nid, R, hb, out, lock, tl>>
LeaseEnd == /\ lock # None /\ (LeaseLoss \/ pc[lock] \notin Critical) /\ lock' = None
            /\ UNCHANGED <<arch, log, nid, R, hb, out, crashes, tl, loc>>
HbExpire(i) == /\ hb[i] /\ i \in seen /\ hb' = [hb EXCEPT ![i] = FALSE]
               /\ UNCHANGED <<arch, log, nid, R, out, lock, crashes, tl, loc>>

\* Archival.  "grace" = the timing assumption: no process is still about to create that file.
\* A process that folds has not looked at the timeline since it read the tail, so there the grace counts from that read;
\* "late": only from the look at the tail's effect
AboutToPut == {"do"} \cup (IF Fold /\ Archive = "grace" THEN {"check"} ELSE {})
ArchiveOne == \E x \in comp :
  /\ Archive # "off" /\ \E y \in comp : y.c > x.c
  /\ Archive \in {"grace", "late"} => \A w \in P : ~(pc[w] \in AboutToPut /\ n[w] # 0 /\ log[n[w]].k = "commit" /\ log[n[w]].i = x.i)
  /\ comp' = comp \ {x} /\ arch' = arch \cup {x} /\ reqF' = reqF \ {x.i} /\ infF' = infF \ {x.i}
  /\ UNCHANGED <<log, nid, R, hb, out, lock, crashes, rbReq, rbDone, data, hi, hiC, seen, bad, loc>>

Next == \/ \E w \in P : StartBegin(w) \/ PStep(w)
        \/ \E w \in J : JStartBegin(w) \/ JStep(w)
        \/ \E w \in W : Crash(w)
        \/ LeaseEnd
        \/ \E i \in Inst : HbExpire(i)
        \/ ArchiveOne
Spec == Init /\ [][Next]_vars
Fair == /\ \A w \in P : WF_vars(PStep(w))
        /\ \A w \in J : WF_vars(JStep(w))
        /\ WF_vars(LeaseEnd) /\ \A i \in Inst : WF_vars(HbExpire(i))
FairSpec == Spec /\ Fair
Sym == Permutations(P) \cup Permutations(J)

----------------------------------------------------------------------------
\* Promises
R1_Times      == "time" \notin bad                        \* every time becomes visible in increasing order
R2_Stable     == "stable" \notin bad                      \* no completion <= t appears after t was seen
R2_Occ        == NB \/ \A x, y \in All : x.i # y.i => x.c < R[y.i] \/ y.c < R[x.i]
R3_NoUndead   == \A x \in comp : ~Planned(x.i) /\ data[x.i] = "yes"
R3_NoUndeadP  == \A x \in comp : InLog("begin", x.i) => ~Planned(x.i) /\ data[x.i] = "yes"   \* instants of P only
R3_OneRollback == /\ \A x, y \in rbReq  : x.i = y.i => x = y
                  /\ \A x, y \in rbDone : x.i = y.i => x = y
R3_OneCommit  == \A x, y \in comp : x.i = y.i => x = y
Decided(i)    == Completed(i) \/ (RolledBack(i) /\ i \notin reqF /\ i \notin infF /\ data[i] # "yes")
R5_Repaired   == <>[](\A i \in seen : Decided(i))
\* A table with writers P only: the log is the timeline. (1) Every entry but the tail is applied, and nothing
\* else ever appears; with FoldGrows, so does a listing taken at any time, joined with the entries that came after
\* its tail. (2) A process that may win the next number would read the same from a listing as from the log
FoldBrackets  == LET m == Len(log)
                     l == IF m = 0 THEN 0 ELSE m - 1 IN
                 /\ FoldBegun(l)  \subseteq seen   /\ seen   \subseteq FoldBegun(m)
                 /\ FoldComp(l)   \subseteq All    /\ All    \subseteq FoldComp(m)
                 /\ FoldPlan(l)   \subseteq rbReq  /\ rbReq  \subseteq FoldPlan(m)
                 /\ FoldUndone(l) \subseteq rbDone /\ rbDone \subseteq FoldUndone(m)
FoldIsListing == \A w \in P : pc[w] = "valid" /\ n[w] = Len(log) =>
                   Listing = FoldAt(n[w]) /\ rbReq = FoldPlan(n[w]) /\ rbDone = FoldUndone(n[w]) /\ hi = FoldTop(n[w])
FoldGrows     == [][seen \subseteq seen' /\ All \subseteq All' /\ rbReq \subseteq rbReq' /\ rbDone \subseteq rbDone']_vars
\* Witnesses (expected to be violated: the model can do something)
Never2Commits == Cardinality(comp) < 2
NeverFinishOther     == ~\E w \in P : pc[w] = "do" /\ n[w] # mine[w] /\ log[n[w]].k = "commit"
NeverVoid     == ~\E k \in 1..Len(log) : log[k].k = "void"
NeverGhost    == ~\E i \in Inst : RolledBack(i) /\ (i \in reqF \/ i \in infF)
=============================================================================
