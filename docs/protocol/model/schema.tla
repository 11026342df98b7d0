-------------------------------- MODULE schema --------------------------------
(* Which schema does a commit record?  Readers go by the greatest completion or  *)
(* by the greatest request, and must find the same one.  A schema is a set of    *)
(* columns.  The log is a sequence of entries: that an append is atomic, and     *)
(* that it needs the tail applied, is what protocol.tla shows.  The files of the *)
(* tail are created one by one, by any process; a crash is a process that rests. *)
(* A table service (compaction, resize) begins by a plan and completes later. It  *)
(* brings no change, but readers by request take the schema that it records, too. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC
CONSTANTS W, w1, w2, a, b, d, New, Old, MaxCalls, MaxLog, Records, Joins, OwnFrom, First, Whole, MaxPlans, Plans
VARIABLES log, pub, pc, ch, called, start, extra, at, calls
ByWriter == (w1 :> {a}) @@ (w2 :> {b})   \* the column that each writer may add
vars == <<log, pub, pc, ch, called, start, extra, at, calls>>
\* entry: what it does; the instant's request; its own (greatest) time; what it records; the change that it brings
Entry(k, w, req, t, sch, gone, c) == [k |-> k, w |-> w, req |-> req, t |-> t, sch |-> sch, gone |-> gone, c |-> c]
None   == [add |-> {}, drop |-> {}]
Top    == Len(log)
Files(e) == IF e.k = "whole" THEN 3 ELSE 1            \* requested, inflight, completed
Done   == pub = IF Top = 0 THEN 0 ELSE Files(log[Top])
\* the entries whose effect is on the timeline, of those that complete a write; and a service, too
Of(kinds) == {k \in 1..Top : log[k].k \in kinds /\ (k < Top \/ Done)}
Seen   == Of({"complete", "whole"})
All    == Of({"complete", "whole", "served"})
Newest == CHOOSE k \in Seen : \A j \in Seen : j <= k                     \* greatest completion
ByReq  == CHOOSE k \in All : \A j \in All : log[j].req <= log[k].req     \* greatest request
Now    == IF Seen = {} THEN Old ELSE log[Newest].sch
Gone   == IF Seen = {} THEN {} ELSE log[Newest].gone                     \* dropped columns: the names are taken
Own(w) == ((IF OwnFrom = "begin" THEN start[w] ELSE called[w]) \cup ch[w].add) \ ch[w].drop
Add(w) == Own(w) \ start[w]
Drop(w) == start[w] \ Own(w)
Result(w) == CASE Records = "start"  -> Own(w)                           \* (weak) the schema of the begin
               [] Joins = "union"    -> (Now \ ch[w].drop) \cup Own(w)   \* (weak) what others dropped returns
               [] OTHER              -> (Now \cup Add(w)) \ Drop(w)
Clash(w) == Joins = "changes" /\ Records = "now" /\ ((Result(w) \ Now) \cap Gone) # {}
GoneBy(w) == IF Result(w) = Now THEN Gone ELSE Gone \cup (Now \ Result(w))
\* a completed write with a later request; or a service, pending or not; (weak) or a completed one; (weak) or none
Later(w) == \/ \E k \in IF Plans = "none" THEN Seen ELSE All : log[k].req > log[at[w]].req
            \/ Plans = "begun" /\ \E k \in 1..Top : log[k].k = "plan" /\ log[k].req > log[at[w]].req
Put(e) == log' = Append(log, e) /\ pub' = 0
Init == /\ log = <<>> /\ pub = 0 /\ pc = [w \in W |-> "idle"] /\ ch = [w \in W |-> None]
        /\ called = [w \in W |-> Old] /\ start = [w \in W |-> Old] /\ extra = [w \in W |-> {}]
        /\ at = [w \in W |-> 0] /\ calls = [w \in W |-> 0]
\* the tail's next file, by its owner or any other process
Publish == /\ ~Done /\ pub' = pub + 1 /\ UNCHANGED <<log, pc, ch, called, start, extra, at, calls>>
\* the verb is called: its change is found against the schema in force then, which may be old by the begin
Call(w) == /\ pc[w] = "idle" /\ calls[w] < MaxCalls
           /\ \E c \in {None} \cup {[add |-> {x}, drop |-> {}] : x \in New[w] \ (Now \cup Gone)}
                              \cup {[add |-> {}, drop |-> {x}] : x \in Now} :
                ch' = [ch EXCEPT ![w] = c]
           /\ called' = [called EXCEPT ![w] = Now] /\ pc' = [pc EXCEPT ![w] = "called"]
           /\ calls' = [calls EXCEPT ![w] = @ + 1] /\ UNCHANGED <<log, pub, start, extra, at>>
Room == Top < MaxLog
Rest(w) == /\ pc' = [pc EXCEPT ![w] = "idle"] /\ ch' = [ch EXCEPT ![w] = None] /\ called' = [called EXCEPT ![w] = Old]
           /\ start' = [start EXCEPT ![w] = Old] /\ extra' = [extra EXCEPT ![w] = {}] /\ at' = [at EXCEPT ![w] = 0]
Begin(w) == /\ pc[w] = "called" /\ Done /\ Room
            /\ Put(Entry("begin", w, 2 * (Top + 1), 2 * (Top + 1), {}, {}, None))
            /\ start' = [start EXCEPT ![w] = Now] /\ at' = [at EXCEPT ![w] = Top + 1]
            /\ pc' = [pc EXCEPT ![w] = "pending"] /\ UNCHANGED <<ch, called, extra, calls>>
\* what others did since the call contradicts the change: it adds a name that was dropped
Refuse(w) == /\ pc[w] \in {"pending", "evolving"} /\ Done /\ Clash(w) /\ Rest(w) /\ UNCHANGED <<log, pub, calls>>
Complete(w) == /\ pc[w] = "pending" /\ Done /\ Room /\ ~Clash(w)
               /\ ~First \/ Result(w) = Now \/ ~Later(w)
               /\ Put(Entry("complete", w, log[at[w]].req, 2 * (Top + 1), Result(w), GoneBy(w), ch[w]))
               /\ Rest(w) /\ UNCHANGED calls
\* a whole entry brings the schema first; (weak) or an instant with two entries does
Evolve(w) == /\ pc[w] = "pending" /\ Done /\ Room /\ ~Clash(w) /\ First /\ Result(w) # Now /\ Later(w)
             /\ IF Whole
                THEN /\ Put(Entry("whole", w, 2 * (Top + 1), 2 * (Top + 1) + 1, Result(w), GoneBy(w), ch[w]))
                     /\ UNCHANGED <<pc, extra>>
                ELSE /\ Put(Entry("begin", w, 2 * (Top + 1), 2 * (Top + 1), {}, {}, None))
                     /\ pc' = [pc EXCEPT ![w] = "evolving"] /\ extra' = [extra EXCEPT ![w] = {Top + 1}]
             /\ UNCHANGED <<ch, called, start, at, calls>>
Evolved(w) == /\ pc[w] = "evolving" /\ Done /\ Room /\ ~Clash(w)
              /\ LET own == CHOOSE k \in extra[w] : TRUE IN
                 Put(Entry("complete", w, log[own].req, 2 * (Top + 1), Result(w), GoneBy(w), ch[w]))
              /\ pc' = [pc EXCEPT ![w] = "pending"] /\ UNCHANGED <<ch, called, start, extra, at, calls>>
\* it lost a conflict, and is done again: a new begin, the change of the call
Retry(w) == /\ pc[w] = "pending" /\ Done /\ Room
            /\ Put(Entry("abort", w, 2 * (Top + 1), 2 * (Top + 1), {}, {}, None))
            /\ pc' = [pc EXCEPT ![w] = "called"] /\ start' = [start EXCEPT ![w] = Old] /\ at' = [at EXCEPT ![w] = 0]
           /\ UNCHANGED <<ch, called, extra, calls>>
\* a service is planned, by any process; it records the schema in force then, whichever process executes it
Plan == /\ Done /\ Room /\ Cardinality({k \in 1..Top : log[k].k = "plan"}) < MaxPlans
        /\ Put(Entry("plan", w1, 2 * (Top + 1), 2 * (Top + 1), Now, {}, None))
        /\ UNCHANGED <<pc, ch, called, start, extra, at, calls>>
Serve == /\ Done /\ Room
         /\ \E k \in 1..Top : /\ log[k].k = "plan" /\ ~\E j \in 1..Top : log[j].k = "served" /\ log[j].req = log[k].req
                             /\ Put(Entry("served", w1, log[k].req, 2 * (Top + 1), log[k].sch, {}, None))
         /\ UNCHANGED <<pc, ch, called, start, extra, at, calls>>
Next == Publish \/ Plan \/ Serve \/ \E w \in W : Call(w) \/ Begin(w) \/ Refuse(w) \/ Complete(w) \/ Evolve(w) \/ Evolved(w) \/ Retry(w)
Spec == Init /\ [][Next]_vars
\* -- promises, of what readers see at every moment
TwoOrders  == Seen # {} => log[Newest].sch = log[ByReq].sch
Added      == UNION {log[k].c.add : k \in Seen}
Dropped    == UNION {log[k].c.drop : k \in Seen}
NoneLost   == (Old \cup Added) \ Dropped \subseteq Now
NoneReturn == Dropped \cap Now = {}
\* -- witnesses
Overlap(j, k) == j < k /\ log[j].c.add # {} /\ log[k].c.add \ log[j].c.add # {} /\ log[k].req < log[j].t
NeverOverlap == ~\E j, k \in Seen : Overlap(j, k) /\ log[k].k = "complete"
NeverBehind  == ~\E j, k \in Seen : j < k /\ log[j].k = "whole" /\ log[k].k = "complete" /\ log[j].w = log[k].w
                                    /\ log[k].req < log[j].req /\ log[k].c.add # {} /\ log[k].c = log[j].c
NeverServed  == ~\E k, j \in 1..Top : log[k].k = "served" /\ log[j].k = "whole" /\ j < k /\ log[j].req > log[k].req
NeverHalf    == ~(Top > 0 /\ log[Top].k = "whole" /\ pub \in {1, 2})
===============================================================================
