-------------------------------- MODULE prune --------------------------------
(* Can old entries of the decision log be deleted?  A writer that froze before  *)
(* its create may find its number free again because that number was pruned.    *)
(* Rules under test: an entry carries a nonce and the nonce of its predecessor;  *)
(* after the create the writer looks whether the chain goes through its entry;   *)
(* a commit needs the whole stretch from the writer's own begin to the tail.     *)
EXTENDS Naturals, FiniteSets, TLC
CONSTANTS W, N, MaxSeq, Keep, Verify, Stretch, None
VARIABLES slot, acted, bad, pc, n, b, seq, want
vars == <<slot, acted, bad, pc, n, b, seq, want>>
Idx  == 1..N
Top  == IF \A k \in Idx : slot[k] = None THEN 0
        ELSE CHOOSE k \in Idx : slot[k] # None /\ \A j \in Idx : slot[j] # None => j <= k
Nonce(k) == IF k = 0 \/ slot[k] = None THEN <<None, 0>> ELSE slot[k].id
Init == /\ slot = [k \in Idx |-> None] /\ acted = {} /\ bad = {} /\ pc = [w \in W |-> "idle"]
        /\ n = [w \in W |-> [k |-> 0, id |-> <<None, 0>>]] /\ b = [w \in W |-> [k |-> 0, i |-> <<None, 0>>]] /\ seq = [w \in W |-> 0]
        /\ want = [w \in W |-> [k |-> "none", i |-> <<None, 0>>]]
\* an entry is applied (by its owner or by any process that finds it as the tail)
Act(e, k) == IF [e |-> e, k |-> k] \in acted THEN UNCHANGED <<acted, bad>>
             ELSE /\ acted' = acted \cup {[e |-> e, k |-> k]}
                  /\ bad' = bad \cup (IF \E a \in acted : a.k >= k THEN {"order"} ELSE {})
                       \cup (IF e.k = "commit" /\ \E a \in acted : a.e.k = "abort" /\ a.e.i = e.i THEN {"undead"} ELSE {})
                       \cup (IF e.k = "abort" /\ \E a \in acted : a.e.k = "commit" /\ a.e.i = e.i THEN {"undead"} ELSE {})
\* an instant is named by the nonce of its begin: a second begin is a new instant
Begun     == {a.e.i : a \in {x \in acted : x.e.k = "begin"}}
Choose(w) == /\ pc[w] = "idle" /\ seq[w] < MaxSeq
             /\ \E x \in {[k |-> "begin", i |-> <<w, seq[w]>>], [k |-> "commit", i |-> b[w].i]}
                        \cup [k : {"abort"}, i : {j \in Begun : j[1] # w}] :
                  /\ x.k = "begin"  => b[w].k = 0
                  /\ x.k = "commit" => b[w].k # 0
                  /\ want' = [want EXCEPT ![w] = x]
             /\ pc' = [pc EXCEPT ![w] = "read"] /\ UNCHANGED <<slot, acted, bad, n, b, seq>>
Read(w) == /\ pc[w] = "read" /\ n' = [n EXCEPT ![w] = [k |-> Top, id |-> Nonce(Top)]]
           /\ IF Top = 0 THEN UNCHANGED <<acted, bad>> ELSE Act(slot[Top], Top)
           /\ pc' = [pc EXCEPT ![w] = "legal"] /\ UNCHANGED <<slot, b, seq, want>>
\* what the log that is still there says about instant i
Says(kind, i) == \E k \in Idx : slot[k] # None /\ slot[k].k = kind /\ slot[k].i = i
\* "present": every number from the own begin to the tail is there; "chain": and each names its predecessor
Whole(w) == /\ \A k \in b[w].k..n[w].k : slot[k] # None
            /\ Stretch = "chain" => /\ slot[b[w].k].id = b[w].i
                                    /\ \A k \in (b[w].k + 1)..n[w].k : slot[k].prev = slot[k - 1].id
Legal(w) == /\ pc[w] = "legal" /\ Top = n[w].k
            /\ LET x == want[w] IN
               IF \/ x.k = "commit" /\ (Says("abort", x.i) \/ Says("commit", x.i)
                                        \/ (Stretch # "none" /\ ~Whole(w)))
                  \/ x.k = "abort" /\ (Says("abort", x.i) \/ Says("commit", x.i) \/ \E a \in acted : a.e.k = "commit" /\ a.e.i = x.i)
                  \/ n[w].k = N
               THEN pc' = [pc EXCEPT ![w] = "idle"] /\ seq' = [seq EXCEPT ![w] = @ + 1]
               ELSE pc' = [pc EXCEPT ![w] = "put"] /\ UNCHANGED seq
            /\ UNCHANGED <<slot, acted, bad, n, b, want>>
Stale(w) == /\ pc[w] = "legal" /\ Top # n[w].k /\ pc' = [pc EXCEPT ![w] = "read"] /\ UNCHANGED <<slot, acted, bad, n, b, seq, want>>
Put(w) == /\ pc[w] = "put"
          /\ LET k == n[w].k + 1 IN
             IF slot[k] # None THEN pc' = [pc EXCEPT ![w] = "read"] /\ UNCHANGED <<slot, seq>>
             ELSE /\ slot' = [slot EXCEPT ![k] = [k |-> want[w].k, i |-> want[w].i, id |-> <<w, seq[w]>>, prev |-> n[w].id]]
                  /\ pc' = [pc EXCEPT ![w] = "verify"] /\ UNCHANGED seq
          /\ UNCHANGED <<acted, bad, n, b, want>>
Settle(w) ==
  /\ pc[w] = "verify"
  /\ LET k  == n[w].k + 1
         ok == Top = k \/ (k < N /\ slot[k + 1] # None /\ slot[k + 1].prev = <<w, seq[w]>>) IN
     IF slot[k] # None /\ slot[k].id = <<w, seq[w]>> /\ (ok \/ ~Verify)
     THEN Act(slot[k], k) /\ b' = [b EXCEPT ![w] = IF want[w].k = "begin" THEN [k |-> k, i |-> want[w].i] ELSE @]
     ELSE UNCHANGED <<acted, bad, b>>
  /\ seq' = [seq EXCEPT ![w] = @ + 1] /\ pc' = [pc EXCEPT ![w] = "idle"] /\ UNCHANGED <<slot, n, want>>
Prune == \E k \in Idx : /\ slot[k] # None /\ k + Keep <= Top /\ slot' = [slot EXCEPT ![k] = None]
                        /\ UNCHANGED <<acted, bad, pc, n, b, seq, want>>
Next == Prune \/ \E w \in W : Choose(w) \/ Read(w) \/ Legal(w) \/ Stale(w) \/ Put(w) \/ Settle(w)
Spec == Init /\ [][Next]_vars
Sym == Permutations(W)
NoLateAct == "order" \notin bad
NoUndead  == "undead" \notin bad
OnePerNumber == \A x, y \in acted : x.k = y.k => x = y
\* A reader that has folded the entries up to m reads on from there: what it may take for applied.
\* Numbers(m): all numbers after m are there. Chain(m, id): and each names its predecessor, the first the one folded last
Numbers(m)   == m < Top /\ \A k \in (m + 1)..Top : slot[k] # None
Chain(m, id) == Numbers(m) /\ slot[m + 1].prev = id /\ \A k \in (m + 2)..Top : slot[k].prev = slot[k - 1].id
IsFold(m)    == /\ \A k \in (m + 1)..(Top - 1) : [e |-> slot[k], k |-> k] \in acted
                /\ \A a \in acted : a.k > m => a.k <= Top /\ slot[a.k] = a.e
FoldedLast(m)  == IF m = 0 THEN {<<None, 0>>} ELSE {a.e.id : a \in {x \in acted : x.k = m}}
FoldByChain    == \A m \in 0..N : \A id \in FoldedLast(m) : Chain(m, id) => IsFold(m)
FoldByNumbers  == \A m \in 0..N : FoldedLast(m) # {} /\ Numbers(m) => IsFold(m)      \* (weak)
NeverBogus == ~\E w \in W : pc[w] = "verify" /\ Top > n[w].k + 1 /\ slot[n[w].k + 1] # None /\ slot[n[w].k+1].id = <<w, seq[w]>> /\ ~\E a \in acted : a.e = slot[n[w].k+1]
===============================================================================
