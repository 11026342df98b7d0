------------------------------- MODULE migrate -------------------------------
(* A table of simple buckets gets rings while it is written (section 17).  Which  *)
(* kind a partition has, and when a writer learns that the kinds change.          *)
(* Every storage operation is a step, but for an append, whose entry is created   *)
(* only if no other one was since the log was read; and for the resize C that     *)
(* gives a partition its ring, which resize.tla shows.  A writer that would       *)
(* complete in simple buckets behind C moves, or begins again: here it begins     *)
(* again.                                                                         *)
EXTENDS Naturals, FiniteSets, TLC
CONSTANTS W, N, Weak
P == {"old", "new"}                        \* one has simple buckets at first, the other is new
VARIABLES props, n, hasB, ring, simple, copied, st
vars == <<props, n, hasB, ring, simple, copied, st>>
Idle == [pc |-> "idle", view |-> "simple", known |-> 0, looked |-> N + 1, at |-> [p \in P |-> {}],
         seen |-> "simple", part |-> "old", kind |-> "simple"]
Init == /\ props = "simple" /\ n = 0 /\ hasB = FALSE /\ ring = [p \in P |-> "none"]
        /\ simple = [p \in P |-> IF p = "old" THEN {0} ELSE {}] /\ copied = [p \in P |-> {}]
        /\ st = [w \in W |-> Idle]

\* the migrating process announces, gives partitions their rings, and ends
Announce == /\ props = "simple" /\ props' = IF "unannounced" \in Weak THEN "begun" ELSE "announced"
            /\ UNCHANGED <<n, hasB, ring, simple, copied, st>>
Migrate(p) == /\ props = "begun" /\ n < N /\ ring[p] = "none" /\ simple[p] # {}
              /\ n' = n + 1 /\ ring' = [ring EXCEPT ![p] = "C"]
              /\ copied' = [copied EXCEPT ![p] = simple[p]]
              /\ UNCHANGED <<props, hasB, simple, st>>
End == /\ props = "begun" /\ \A p \in P : simple[p] = {} \/ ring[p] # "none"
       /\ props' = "done" /\ UNCHANGED <<n, hasB, ring, simple, copied, st>>

At(w, pc) == st[w].pc = pc
Table == <<props, n, hasB, ring, simple, copied>>
\* a writer opens the table: the properties, then the log, and what had completed by it
Open(w) == /\ At(w, "idle") /\ st' = [st EXCEPT ![w].view = props, ![w].pc = "log"] /\ UNCHANGED Table
ReadLog(w) == /\ At(w, "log") /\ UNCHANGED Table
              /\ st' = [st EXCEPT ![w].known = n, ![w].at = simple,
                                  ![w].pc = IF st[w].view = "announced" THEN "read" ELSE "place"]
\* it places its rows: the ring is asked for first, then simple file groups, as of the log that it read
Place(w) == /\ At(w, "place") /\ UNCHANGED Table
            /\ \E p \in P : st' = [st EXCEPT ![w].part = p,
                                             ![w].pc = IF st[w].view = "simple" THEN "read" ELSE "ring"]
AskRing(w) == /\ At(w, "ring") /\ UNCHANGED Table
              /\ IF ring[st[w].part] # "none"
                 THEN st' = [st EXCEPT ![w].kind = "ring", ![w].pc = "read"]
                 ELSE st' = [st EXCEPT ![w].pc = IF st[w].at[st[w].part] = {} THEN "first" ELSE "read"]
MakeRing(w) == /\ At(w, "first") /\ st' = [st EXCEPT ![w].kind = "ring", ![w].pc = "read"]
               /\ ring' = [ring EXCEPT ![st[w].part] = IF @ = "none" THEN "first" ELSE @]
               /\ UNCHANGED <<props, n, hasB, simple, copied>>
\* it appends its completion, or B: the tail, then the properties if entries are new, then the entry
Read(w) == /\ At(w, "read") /\ UNCHANGED Table
           /\ st' = [st EXCEPT ![w].known = n, ![w].pc = IF st[w].looked = n THEN "put" ELSE "look"]
Look(w) == /\ At(w, "look") /\ UNCHANGED Table
           /\ st' = [st EXCEPT ![w].pc = "put", ![w].looked = st[w].known,
                               ![w].seen = IF "blind" \in Weak THEN st[w].view ELSE props]
Outdated(w) == st[w].view = "simple" /\ st[w].seen # "simple"
Put(w) ==
  /\ At(w, "put") /\ n < N /\ UNCHANGED <<props, ring, copied>>
  /\ IF n # st[w].known
     THEN st' = [st EXCEPT ![w].pc = "read"] /\ UNCHANGED <<n, hasB, simple>>
     ELSE IF st[w].view = "announced"
     THEN st' = [st EXCEPT ![w].pc = "say"] /\ n' = n + 1 /\ hasB' = TRUE /\ UNCHANGED simple
     ELSE IF Outdated(w) \/ (st[w].kind = "simple" /\ ring[st[w].part] = "C")
     THEN st' = [st EXCEPT ![w] = Idle] /\ UNCHANGED <<n, hasB, simple>>       \* it begins again
     ELSE /\ st' = [st EXCEPT ![w] = Idle] /\ n' = n + 1 /\ UNCHANGED hasB
          /\ simple' = IF st[w].kind = "ring" THEN simple
                       ELSE [simple EXCEPT ![st[w].part] = @ \cup {n + 1}]
Say(w) == /\ At(w, "say") /\ st' = [st EXCEPT ![w] = Idle]
          /\ props' = IF props = "announced" THEN "begun" ELSE props
          /\ UNCHANGED <<n, hasB, ring, simple, copied>>
Next == \/ Announce \/ End \/ \E p \in P : Migrate(p)
        \/ \E w \in W : \/ Open(w) \/ ReadLog(w) \/ Place(w) \/ AskRing(w) \/ MakeRing(w)
                        \/ Read(w) \/ Look(w) \/ Put(w) \/ Say(w)
Spec == Init /\ [][Next]_vars
Sym == Permutations(W)
\* a partition with a ring has no rows in simple buckets but those that its C took along
OneKind == \A p \in P : ring[p] # "none" => simple[p] = copied[p]
\* the properties say that it is under way only behind B; once it has ended, no simple buckets are left
Begun == props \in {"begun", "done"} => hasB
Ended == props = "done" => \A p \in P : simple[p] = {} \/ ring[p] # "none"
NeverDone == ~(props = "done" /\ ring["old"] = "C" /\ ring["new"] = "first")
NeverAgain == ~\E w \in W : At(w, "put") /\ n = st[w].known /\ Outdated(w)
===============================================================================
