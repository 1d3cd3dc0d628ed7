------------------------------- MODULE Strake -------------------------------
(***************************************************************************)
(* One array: its labels, epochs, bitmap page, redo log and member states, *)
(* with crashes between any two writes to drives, and members lost and     *)
(* taken back at any time. README.md says what is modelled and what is not. The twin of  *)
(* this module in Rust is crates/sim/src/model; its names are these.       *)
(* References are to docs/on-disk.md ("Update rules") and to the code.     *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences

CONSTANTS
  N,          \* members of the array
  Redundancy, \* members that it can lose
  Copies,     \* TRUE: a mirror; FALSE: data and parity
  Writes,     \* client writes in one behaviour, at most
  Crashes,    \* crashes
  Stops,      \* orderly stops
  Changes,    \* members that fail or are taken back
  Break       \* "nothing", or the rule that is broken to see an invariant fail

Members == 0 .. N - 1
States  == {"in", "re", "out"}                \* in sync; rebuilding; faulty or missing

VARIABLES
  head, tail,  \* drive: its newest label; whether its tail ring has that one too
  page,        \* drive: its bitmap page, for one region
  data, rec,   \* drive: the writes it holds; the newest record of its redo log
  mode,        \* "off", "starting" or "on"
  lab, old,    \* the label in force; the one that a start has found
  bits,        \* the page in memory
  use, failed, \* drives in use; those of them that take nothing any more
  joining,     \* members taken back by a label that not every member has yet
  completed,   \* the last generation that every member surely has
  job,         \* what is being written to the members in use
  wr,          \* the client's write under way
  untrusted,   \* a crash left parity or copies that may differ
  epochs,      \* activations so far; each has a number of its own
  acked,       \* writes that were acknowledged
  last,        \* the last label that every member it calls live has had: it may have been acted on
  forked,      \* a later label was as complete, and did not continue it
  unrecorded,  \* members that failed, and no label that calls them out has reached every member it calls live
  spent        \* how much of Writes, Crashes, Stops and Changes is used up

disk     == <<head, tail, page, data, rec>>
memory   == <<lab, old, bits, use, failed, joining, completed, untrusted>>
ghost    == <<acked, last, forked, unrecorded>>
vars     == <<disk, memory, mode, job, wr, epochs, ghost, spent>>

-----------------------------------------------------------------------------
(* Values *)

Label0 == [gen |-> 1, epoch |-> 1, parent |-> 0, clean |-> FALSE,
           st |-> [m \in Members |-> "in"], since |-> [m \in Members |-> 1],
           held |-> [m \in Members |-> 0], hist |-> <<[epoch |-> 1, first |-> 1]>>,
           logged |-> FALSE, doubt |-> FALSE]
NoLabel == [Label0 EXCEPT !.gen = 0]
Page0   == [seq |-> 1, intent |-> FALSE, stale |-> {}]
NoPage  == [Page0 EXCEPT !.seq = 0]
NoRec   == [w |-> 0, epoch |-> 0, gen |-> 0, parts |-> {}]
NoJob   == [stage |-> "none", phase |-> "none", todo |-> {}]
NoWrite == [w |-> 0, phase |-> "none", todo |-> {}, rec |-> NoRec]

In(st)   == {m \in Members : st[m] = "in"}
Out(st)  == {m \in Members : st[m] = "out"}
Live(l)  == Members \ Out(l.st)                \* who holds every label
Tolerates(lost) == Cardinality(lost) <= Redundancy
Parity   == ~Copies

-----------------------------------------------------------------------------
(* Which labels form an array: crates/ondisk/src/assemble.rs, lineage.rs *)

SameChain(a, b) == a.gen = b.gen /\ a.epoch = b.epoch
Same(a, b) == SameChain(a, b) /\ a.st = b.st /\ a.since = b.since /\ a.held = b.held

\* `own` is the label just before `new`, in its activation or the one before.
Precedes(own, new) ==
  own.gen + 1 = new.gen /\ (own.epoch = new.epoch \/ own.epoch = new.parent)

\* Who has been in sync since generation `g` or before.
Lasting(new, g) == {m \in In(new.st) : new.since[m] <= g}

\* How `own` stands to the activations that `new` remembers.
Lineage(new, own) ==
  LET ends(i)   == IF i < Len(new.hist) THEN new.hist[i + 1].first ELSE new.gen + 1
      passed(i) == /\ new.hist[i].epoch = own.epoch
                   /\ new.hist[i].first <= own.gen /\ own.gen < ends(i)
  IN IF own.gen < new.hist[1].first THEN "older"
     ELSE IF \E i \in 1 .. Len(new.hist) : passed(i) THEN "ours" ELSE "other"

\* `new` is `own`, or follows from it.
Continues(new, own) == Lineage(new, own) = "ours" /\ (SameChain(new, own) => Same(new, own))

\* Members of which `own` shows that they had the label before it. One that is called rebuilding although it was in sync
\* after it last went out was found by a start without the label that promotes it.
Vouched(own) ==
  CASE Break = "live vouches"         -> Live(own)
    [] Break = "only in sync vouches" -> In(own.st)
    [] OTHER -> In(own.st) \cup {m \in Live(own) : own.since[m] > own.held[m] + 1}

\* Whether the label `own`, of member `m`, belongs to another history than `new` (consequences 2 and 3).
IsFork(new, own, m) ==
  LET lasting == Lasting(new, own.gen)
  IN /\ ~Same(own, new)
     /\ \/ IF lasting # {} THEN lasting \cap Vouched(own) = {}
           ELSE Lineage(new, own) = "other"
        \/ new.st[m] = "in" /\ own.gen + 1 >= new.gen /\ ~Precedes(own, new)

\* Of two labels with one number one was never acted on: no drive here shows that it was not that of member `m`
\* (consequence 4).
Undecided(new, m, S) ==
  /\ head[m].gen = new.gen /\ ~Same(head[m], new) /\ Break # "slot decides"
  /\ ~\E k \in Live(head[m]) \cap S : ~Same(head[k], head[m])

\* The label of member `m` is, or may be, of another history than `new`.
Other(new, m, S) == IsFork(new, head[m], m) \/ Undecided(new, m, S)

\* Whose label describes the array: generation, then no drive here is of another history, then holders, then slot.
Newest(S) ==
  LET undisputed(m) == ~\E k \in S : Other(head[m], k, S)
      holders(m)    == Cardinality({k \in S : SameChain(head[k], head[m])})
      better(a, b)  ==
        \/ head[a].gen > head[b].gen
        \/ head[a].gen = head[b].gen /\
             \/ undisputed(a) /\ ~undisputed(b)
             \/ undisputed(a) = undisputed(b) /\
                  \/ holders(a) > holders(b)
                  \/ holders(a) = holders(b) /\ a < b
  IN CHOOSE a \in S : \A b \in S \ {a} : better(a, b)

\* What of member `m`, which is here, may be trusted: its state, and what it lacks of what it should hold.
Trust(new, confirmed, m) ==
  LET own == head[m]
      is  == new.st[m]
      says == IF \/ SameChain(own, new)
                 \/ Precedes(own, new) /\ ~confirmed
              THEN own.st[m] ELSE "out"
      left == /\ ~confirmed /\ Lineage(new, own) = "ours"
              /\ new.held[m] > 0 /\ own.gen >= new.held[m]
  IN CASE is = "out"                 -> [st |-> "out", lacks |-> "recorded"]
       [] is = "in" /\ says = "in"   -> [st |-> "in",  lacks |-> "nothing"]
       [] is = "in" /\ says = "re"   -> [st |-> "re",  lacks |-> "recorded"]
       [] is = "in" /\ says = "out"  -> [st |-> "out", lacks |-> "nothing"]
       [] is = "re" /\ says = "re"   -> [st |-> "re",  lacks |-> "recorded"]
       [] is = "re" /\ says = "out"  -> [st |-> "re",  lacks |-> IF left THEN "recorded" ELSE "all"]
       [] is = "re" /\ says = "in"   -> [st |-> "re",  lacks |-> "all"]

\* One that is not here lacks what was recorded; the intents of the last activation come on top.
Absent(new, m) == [st |-> "out", lacks |-> IF new.st[m] = "in" THEN "nothing" ELSE "recorded"]

(* The redo log: crates/engine/src/assemble/replay.rs *)

\* The newest record of the label's activation, if it counts and every member that has to has its part.
Replay(l, here) ==
  LET ours  == {m \in here : rec[m].w > 0 /\ rec[m].epoch = l.epoch}
      r     == rec[CHOOSE m \in ours : \A k \in ours : rec[k].w <= rec[m].w]
      takes(m) == l.st[m] # "re" \/ r.gen > l.held[m]
      parts == {m \in r.parts \cap here : takes(m)}
  IN IF ours # {} /\ l.logged /\ \A m \in parts : rec[m] = r
     THEN [w |-> r.w, to |-> parts] ELSE [w |-> 0, to |-> {}]

\* After this label a crash leaves no parity in doubt: what was being written is in the log.
Covered(l) == Parity /\ l.logged /\ ~l.clean

\* What a start with --degraded on the drives `S` comes to: ondisk::assemble, then engine `open` up to its first write.
Verdict(S) ==
  LET new  == head[Newest(S)]
      confirmed == \E m \in S : SameChain(head[m], new) /\ tail[m]
      fate == [m \in Members |-> IF m \in S THEN Trust(new, confirmed, m) ELSE Absent(new, m)]
      st   == [m \in Members |-> fate[m].st]
      here == {m \in S : st[m] # "out"}
      paged == IF In(st) = {} THEN here ELSE In(st)
      top  == page[CHOOSE m \in paged : \A k \in paged :
                     page[k].seq < page[m].seq \/ (page[k].seq = page[m].seq /\ m <= k)]
      covered == Covered(new)
      as_before == \A m \in Members : (new.st[m] = "in") = (st[m] = "in")
      dirty == /\ Parity /\ top.intent /\ In(st) # Members /\ ~covered
               /\ ~(new.clean /\ as_before) /\ Break # "dirty is started"
      lacking(m) == \/ fate[m].lacks = "all"
                    \/ fate[m].lacks = "recorded" /\ m \in top.stale
                    \/ st[m] = "out" /\ top.intent
      late == IF confirmed THEN 0 ELSE 1
      held(m) == IF st[m] = "out" /\ new.st[m] # "out"
                 THEN (IF new.gen > late THEN new.gen - late ELSE 1) ELSE new.held[m]
      why  == IF \E m \in S : IsFork(new, head[m], m) THEN "fork"
              ELSE IF \E m \in S : Undecided(new, m, S) THEN "undecided"
              ELSE IF ~Tolerates(Members \ In(st)) THEN "too few"
              ELSE IF new.doubt /\ Break # "doubt is started" THEN "in doubt"
              ELSE IF dirty THEN "dirty" ELSE "starts"
  IN [why |-> why, new |-> new, here |-> here,
      bits |-> [seq |-> top.seq, intent |-> top.intent,
                stale |-> {m \in Members : lacking(m)}],
      next |-> [new EXCEPT !.st = st, !.held = [m \in Members |-> held(m)], !.clean = FALSE,
                  !.doubt = @ /\ Break # "doubt is started"]]

\* The last label of member `m`, which is out, that the history of `new` passed through: its newest one, or the one
\* before if that was never acted on. 0: it is of another history, or from before what is remembered. lineage.rs,
\* `shared`.
Shared(new, m) ==
  LET own     == head[m]
      others  == Lasting(new, own.gen) \ {m}
      vouches == others \cap Vouched(own) # {}
      begins  == own.hist[Len(own.hist)] = [epoch |-> own.epoch, first |-> own.gen] /\ Break # "first label is a fork"
      before  == [own EXCEPT !.gen = @ - 1, !.epoch = IF begins THEN own.parent ELSE own.epoch]
  IN CASE Lineage(new, own) = "ours" /\ (others = {} \/ vouches \/ Break = "number vouches") -> own.gen
       [] Lineage(new, own) = "other" /\ vouches /\ Lineage(new, before) = "ours" -> before.gen
       [] OTHER -> 0

\* A drive that comes back to an array that runs without it may be taken as it left: lineage.rs, `returning`.
Returns(new, m) == new.st[m] = "out" /\ new.held[m] > 0 /\ Shared(new, m) >= new.held[m]

-----------------------------------------------------------------------------
(* Everything is off; what is not on a drive is gone. *)

Off(missed) ==
  /\ unrecorded' = unrecorded \cup missed
  /\ mode' = "off" /\ lab' = NoLabel /\ old' = NoLabel /\ bits' = NoPage /\ use' = {} /\ failed' = {}
  /\ joining' = {} /\ completed' = 0 /\ untrusted' = FALSE /\ job' = NoJob /\ wr' = NoWrite

Init ==
  /\ head = [m \in Members |-> Label0] /\ tail = [m \in Members |-> TRUE]
  /\ page = [m \in Members |-> Page0] /\ data = [m \in Members |-> {}] /\ rec = [m \in Members |-> NoRec]
  /\ mode = "on" /\ lab = Label0 /\ old = NoLabel /\ bits = Page0 /\ use = Members /\ failed = {}
  /\ joining = {} /\ completed = 1 /\ untrusted = FALSE /\ job = NoJob /\ wr = NoWrite
  /\ epochs = 1 /\ acked = {} /\ last = Label0 /\ forked = FALSE /\ unrecorded = {}
  /\ spent = [writes |-> 0, crashes |-> 0, stops |-> 0, changes |-> 0]

(***************************************************************************)
(* Writing to the members, one at a time and in any order. A job goes      *)
(* through phases: pages before labels, heads before tails, and a phase    *)
(* begins when every member in use has what the one before it wrote        *)
(* (crates/engine/src/shard/leader_tasks/records.rs, engine assemble.rs).  *)
(***************************************************************************)

Begin(stage, phase, targets) == [stage |-> stage, phase |-> phase, todo |-> targets]

\* A job that begins with the page `b`: it is written unless every target has it as it is.
Pages(stage, b, targets) ==
  LET same == \A m \in targets : page[m] = b
  IN /\ bits' = IF same THEN b ELSE [b EXCEPT !.seq = @ + 1]
     /\ job' = Begin(stage, "page", IF same THEN {} ELSE targets)

\* Who may get now what the job writes: a label that promotes members goes to these before it goes to others, so that
\* no drive shows a promotion that the promoted member lacks. When that member fails, the others get the label all the
\* same: no member may be two labels behind.
Due ==
  LET promoted == {m \in (In(lab.st) \cap job.todo) \ failed : lab.since[m] = lab.gen}
  IN IF /\ job.phase = "head" /\ job.stage # "finish" /\ Break # "promotion in any order"
        /\ promoted # {}
     THEN promoted ELSE job.todo

\* One member gets what the job writes now.
Put(m) ==
  /\ m \in Due \ failed
  /\ job' = [job EXCEPT !.todo = @ \ {m}]
  /\ LET label == IF job.stage = "finish" THEN old ELSE lab
     IN /\ page' = IF job.phase = "page" THEN [page EXCEPT ![m] = bits] ELSE page
        /\ head' = IF job.phase = "head" THEN [head EXCEPT ![m] = label] ELSE head
        /\ tail' = CASE job.phase = "tail" -> [tail EXCEPT ![m] = TRUE]
                     [] job.phase = "head" -> [tail EXCEPT ![m] = @ /\ SameChain(head[m], label)]
                     [] OTHER -> tail
        /\ data' = IF job.phase = "redo" THEN [data EXCEPT ![m] = @ \cup {Replay(old, use).w}] ELSE data
        /\ IF job.phase = "head" /\ job.todo = {m} /\ Live(label) \subseteq use
           THEN last' = label /\ forked' = (forked \/ ~Continues(label, last)) /\ unrecorded' = {}
           ELSE UNCHANGED <<last, forked, unrecorded>>
  /\ UNCHANGED <<rec, memory, mode, wr, epochs, acked, spent>>

\* The next phase of a job that needs nothing but its own label.
Phase(next) == job' = [job EXCEPT !.phase = next, !.todo = use]

\* From pages to heads the label gets its number.
Number ==
  /\ job.phase = "page" /\ job.stage \in {"label", "stop", "absent"}
  /\ lab' = [lab EXCEPT !.gen = @ + 1] /\ Phase("head")
  /\ UNCHANGED <<disk, old, bits, use, failed, joining, completed, untrusted, mode, wr, epochs, ghost, spent>>

\* From heads to tails; a start that finishes an update without some member writes no tails.
Tails ==
  /\ \/ job.phase = "head" /\ (job.stage = "finish" => Live(old) \subseteq use)
     \/ job.phase = "page" /\ job.stage = "activate"
  /\ Phase(IF job.phase = "page" THEN "head" ELSE "tail")
  /\ UNCHANGED <<disk, memory, mode, wr, epochs, ghost, spent>>

\* A page was written alone: the bit may be relied on, or is gone.
Marked ==
  /\ job.stage = "bits" /\ job' = NoJob
  /\ UNCHANGED <<disk, memory, mode, wr, epochs, ghost, spent>>

\* A label is everywhere: only now it is acted on. Writes that a member missed may be acknowledged.
Recorded ==
  /\ job.stage = "label" /\ job.phase = "tail"
  /\ completed' = lab.gen /\ joining' = {} /\ job' = NoJob
  /\ wr' = [wr EXCEPT !.todo = @ \cap use]
  /\ UNCHANGED <<disk, lab, old, bits, use, failed, untrusted, mode, epochs, ghost, spent>>

\* The label of an orderly stop is everywhere.
Stopped ==
  /\ job.stage = "stop" /\ job.phase = "tail"
  /\ Off(failed) /\ UNCHANGED <<disk, epochs, acked, last, forked, spent>>

\* A start begins its own activation: the next generation, under an epoch of its own.
Activate(replayed) ==
  /\ lab' = [lab EXCEPT !.gen = @ + 1, !.epoch = epochs + 1, !.parent = lab.epoch,
               !.logged = Parity /\ In(lab.st) # Members /\ (bits.intent => replayed),
               !.hist = Append(@, [epoch |-> epochs + 1, first |-> lab.gen + 1])]
  /\ epochs' = epochs + 1 /\ Pages("activate", bits, use)
  /\ UNCHANGED <<old, use, failed, joining, completed, untrusted>>

\* A start has finished the update that a crash cut short. The log is carried out without a member only after a label
\* that calls it missing.
Finished ==
  /\ job.stage = "finish" /\ (job.phase = "tail" \/ ~(Live(old) \subseteq use))
  /\ IF ~Covered(old) THEN Activate(FALSE)
     ELSE IF ~(Live(old) \subseteq use) /\ Break # "absent unrecorded"
          THEN /\ Pages("absent", bits, use)
               /\ UNCHANGED <<lab, old, use, failed, joining, completed, untrusted, epochs>>
          ELSE job' = Begin("replay", "redo", Replay(old, use).to) /\ UNCHANGED <<memory, epochs>>
  /\ UNCHANGED <<disk, mode, wr, ghost, spent>>

Replayed ==
  /\ \/ /\ job.stage = "absent" /\ job.phase = "tail"
        /\ job' = Begin("replay", "redo", Replay(old, use).to) /\ UNCHANGED <<memory, epochs>>
     \/ job.stage = "replay" /\ Activate(TRUE)
  /\ UNCHANGED <<disk, mode, wr, ghost, spent>>

\* The activation is everywhere: the array serves.
Started ==
  /\ job.stage = "activate" /\ job.phase = "tail"
  /\ mode' = "on" /\ job' = NoJob /\ completed' = lab.gen /\ old' = NoLabel
  /\ untrusted' = (bits.intent /\ ~Covered(old))
  /\ UNCHANGED <<disk, lab, bits, use, failed, joining, wr, epochs, ghost, spent>>

Next1 == /\ job.todo = {} /\ failed = {}
         /\ Number \/ Tails \/ Marked \/ Recorded \/ Stopped \/ Finished \/ Replayed \/ Started

-----------------------------------------------------------------------------
(* A client's write: intent bit, then record where parity misses a member, then data, then the answer. *)

Quiet == mode = "on" /\ job = NoJob /\ failed = {}

Mark ==
  /\ Quiet /\ wr = NoWrite /\ ~bits.intent /\ spent.writes < Writes
  /\ Pages("bits", [bits EXCEPT !.intent = TRUE, !.stale = @ \cup Out(lab.st)], use)
  /\ wr' = [NoWrite EXCEPT !.w = spent.writes + 1, !.phase = "mark"]
  /\ spent' = [spent EXCEPT !.writes = @ + 1]
  /\ UNCHANGED <<disk, lab, old, use, failed, joining, completed, untrusted, mode, epochs, ghost>>

Unmark ==
  /\ Quiet /\ wr = NoWrite /\ bits.intent /\ ~untrusted
  /\ Pages("bits", [bits EXCEPT !.intent = FALSE], use)
  /\ UNCHANGED <<disk, lab, old, use, failed, joining, completed, untrusted, mode, wr, epochs, ghost, spent>>

Write ==
  /\ Quiet /\ (wr.phase = "mark" \/ (wr = NoWrite /\ spent.writes < Writes))
  /\ bits.intent \/ Break = "data before bit"
  /\ LET w == IF wr.phase = "mark" THEN wr.w ELSE spent.writes + 1
         logs == Parity /\ (In(lab.st) # Members \/ lab.logged)
         r == [w |-> w, epoch |-> lab.epoch, gen |-> lab.gen, parts |-> use]
     IN /\ wr' = [w |-> w, phase |-> IF logs THEN "log" ELSE "data", todo |-> use,
                  rec |-> IF logs THEN r ELSE NoRec]
        /\ spent' = [spent EXCEPT !.writes = w]
  /\ UNCHANGED <<disk, memory, mode, job, epochs, ghost>>

WritePut(m) ==
  /\ m \in wr.todo \ failed
  /\ rec'  = IF wr.phase = "log" THEN [rec EXCEPT ![m] = wr.rec] ELSE rec
  /\ data' = IF wr.phase = "data" THEN [data EXCEPT ![m] = @ \cup {wr.w}] ELSE data
  /\ wr' = [wr EXCEPT !.todo = @ \ {m}]
  /\ UNCHANGED <<head, tail, page, memory, mode, job, epochs, ghost, spent>>

LogDone ==
  /\ wr.phase = "log" /\ wr.todo = {}
  /\ wr' = [wr EXCEPT !.phase = "data", !.todo = use]
  /\ UNCHANGED <<disk, memory, mode, job, epochs, ghost, spent>>

\* A member that missed the write is in `todo` until a label that calls it out is everywhere.
Ack ==
  /\ wr.phase = "data"
  /\ wr.todo = {} \/ (Break = "answered before out" /\ wr.todo \subseteq failed)
  /\ acked' = acked \cup {wr.w} /\ wr' = NoWrite
  /\ UNCHANGED <<disk, memory, mode, job, epochs, last, forked, unrecorded, spent>>

-----------------------------------------------------------------------------
(* Members: crates/engine/src/shard/leader_tasks.rs, stale.rs, doubt.rs, logged.rs *)

\* A member fails. One too many stops the array and is never recorded.
Fail(m) ==
  /\ mode = "on" /\ m \in use \ failed /\ spent.changes < Changes
  /\ spent' = [spent EXCEPT !.changes = @ + 1]
  /\ IF Tolerates((Members \ In(lab.st)) \cup failed \cup {m})
     THEN /\ failed' = failed \cup {m}
          /\ UNCHANGED <<lab, old, bits, use, joining, completed, untrusted, mode, job, wr, unrecorded>>
     ELSE Off(failed \cup {m})
  /\ UNCHANGED <<disk, epochs, acked, last, forked>>

\* The next label calls those out that failed; the page before it says what they lack.
TakeOut ==
  /\ mode = "on" /\ failed # {} /\ Due \subseteq failed
  /\ LET doubt == Parity /\ untrusted /\ ~(failed \subseteq bits.stale) /\ Break # "doubt forgotten"
         held(m) == IF m \in joining /\ lab.held[m] > 0 THEN lab.held[m] ELSE completed
     IN lab' = [lab EXCEPT
          !.st    = [m \in Members |-> IF m \in failed THEN "out" ELSE lab.st[m]],
          !.held  = [m \in Members |-> IF m \in failed THEN held(m) ELSE lab.held[m]],
          !.doubt = @ \/ doubt]
  /\ LET lacking == IF bits.intent /\ Break # "stale forgotten" THEN failed ELSE {}
     IN Pages(IF job.stage = "stop" THEN "stop" ELSE "label",
              [bits EXCEPT !.stale = @ \cup lacking], use \ failed)
  /\ use' = use \ failed /\ joining' = joining \ failed /\ failed' = {} /\ unrecorded' = unrecorded \cup failed
  /\ UNCHANGED <<disk, mode, old, completed, untrusted, wr, epochs, acked, last, forked, spent>>

\* A drive is taken back as it left.
Readd(m) ==
  /\ Quiet /\ wr = NoWrite /\ m \notin use /\ spent.changes < Changes /\ Returns(lab, m)
  /\ spent' = [spent EXCEPT !.changes = @ + 1]
  /\ lab' = [lab EXCEPT !.st[m] = "re"] /\ use' = use \cup {m} /\ joining' = joining \cup {m}
  /\ Pages("label", bits, use \cup {m})
  /\ UNCHANGED <<disk, old, failed, completed, untrusted, mode, wr, epochs, ghost>>

\* What a member lacks is copied; then a label calls it in sync.
Rebuilt(m) ==
  /\ Quiet /\ wr = NoWrite /\ ~untrusted /\ lab.st[m] = "re"
  /\ LET source == CHOOSE k \in In(lab.st) : \A j \in In(lab.st) : k <= j
     IN data' = IF m \in bits.stale THEN [data EXCEPT ![m] = data[source]] ELSE data
  /\ lab' = [lab EXCEPT !.st[m] = "in", !.since[m] = lab.gen + 1]
  /\ Pages("label", [bits EXCEPT !.stale = @ \ {m}], use)
  /\ UNCHANGED <<head, tail, page, rec, old, use, failed, joining, completed, untrusted, mode, wr, epochs, ghost, spent>>

\* Every write under way is in the log: the label says so. And no longer, when every member is in sync.
Logged ==
  /\ Quiet /\ Parity
  /\ \/ ~lab.logged /\ In(lab.st) # Members /\ (wr.phase \in {"none", "mark"} \/ wr.rec # NoRec)
     \/ lab.logged /\ In(lab.st) = Members /\ wr = NoWrite
  /\ lab' = [lab EXCEPT !.logged = ~@, !.gen = @ + 1] /\ job' = Begin("label", "head", use)
  /\ UNCHANGED <<disk, old, bits, use, failed, joining, completed, untrusted, mode, wr, epochs, ghost, spent>>

\* Parity and copies are made true again; what was not acknowledged may be there or not.
Resync ==
  /\ Quiet /\ wr = NoWrite /\ untrusted /\ untrusted' = FALSE
  /\ \E k \in In(lab.st) : data' = [m \in Members |-> IF m \in In(lab.st) THEN data[k] ELSE data[m]]
  /\ UNCHANGED <<head, tail, page, rec, lab, old, bits, use, failed, joining, completed, mode, job, wr, epochs, ghost, spent>>

-----------------------------------------------------------------------------
(* Stops, crashes and starts *)

Stop ==
  /\ Quiet /\ wr = NoWrite /\ spent.stops < Stops
  /\ spent' = [spent EXCEPT !.stops = @ + 1]
  /\ lab' = [lab EXCEPT !.clean = TRUE] /\ Pages("stop", [bits EXCEPT !.intent = untrusted], use)
  /\ UNCHANGED <<disk, old, use, failed, joining, completed, untrusted, mode, wr, epochs, ghost>>

Crash ==
  /\ mode # "off" /\ spent.crashes < Crashes
  /\ spent' = [spent EXCEPT !.crashes = @ + 1]
  /\ Off(failed) /\ UNCHANGED <<disk, epochs, acked, last, forked>>

\* A start with any drives: others are lost, or come back, between any two starts.
Start(S) ==
  /\ mode = "off" /\ Verdict(S).why = "starts"
  /\ LET v == Verdict(S)
     IN /\ mode' = "starting" /\ old' = v.new /\ lab' = v.next /\ bits' = v.bits /\ use' = v.here
        /\ job' = Begin("finish", "head", v.here)
        \* With more than one redundancy, drives that are here may know too little of a label on one that is not.
        /\ forked' = (forked \/ (Redundancy > 1 /\ \E m \in Members \ S : ~Continues(v.new, head[m])))
        /\ unrecorded' = unrecorded \ S
  /\ UNCHANGED <<disk, failed, joining, completed, untrusted, wr, epochs, acked, last, spent>>

Next ==
  \/ \E m \in Members : Put(m) \/ WritePut(m) \/ Fail(m) \/ Readd(m) \/ Rebuilt(m)
  \/ Next1 \/ TakeOut \/ Mark \/ Unmark \/ Write \/ LogDone \/ Ack \/ Logged \/ Resync \/ Stop \/ Crash
  \/ \E S \in SUBSET Members \ {{}} : Start(S)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Invariants. Those about starts hold whenever everything is off, whichever drives are here. *)

\* What a member holds when the start has carried out the log.
Holds(v, m) == LET r == Replay(v.new, v.here)
               IN IF Covered(v.new) /\ m \in r.to THEN data[m] \cup {r.w} ELSE data[m]

\* "What was acknowledged is never passed over": no start serves without a write that was acknowledged and that a
\* drive which is here holds.
AcknowledgedIsNotPassedOver ==
  mode = "off" => \A S \in SUBSET Members \ {{}} :
    LET v == Verdict(S)
    IN v.why = "starts" =>
         \A w \in acked : (\E m \in S : w \in data[m]) => \A m \in In(v.next.st) : w \in Holds(v, m)

\* "An update that was cut short is no fork": what looks like two histories is two histories.
CutShortIsNoFork ==
  mode # "off" \/ forked \/ \A S \in SUBSET Members \ {{}} : Verdict(S).why # "fork"

\* "No crash costs a member or the array": with every drive here the array starts with all that the newest label
\* calls live, or names what is in doubt.
CutShortCostsNoMember ==
  mode # "off" \/ forked \/
    LET v == Verdict(Members)
    IN /\ v.why \in {"starts", "in doubt", "dirty"}
       /\ Live(v.new) \subseteq Live(v.next)

\* "A member that missed something is never taken for one that did not."
InSyncMissedNothing ==
  mode = "on" => \A a, b \in In(lab.st) \ failed : data[a] \cap acked = data[b] \cap acked

\* "A region's intent bit is on every member before the first data of a write to it."
BitBeforeData ==
  mode = "on" /\ wr.phase = "data" => \A m \in use \ failed : page[m].intent

\* "Nothing is recovered from untrusted parity without a list of what is in doubt."
NoSilentDoubt ==
  mode = "on" /\ Parity /\ In(lab.st) # Members /\ ~lab.doubt =>
    \A a, b \in In(lab.st) \ failed : data[a] \ {wr.w} = data[b] \ {wr.w}

\* "A recovery that always starts": where the newest label that is here calls enough drives in sync that are here, and
\* none of them has failed, there are not too few.
StartsWhenItCould ==
  mode # "off" \/ forked \/ \A S \in SUBSET (Members \ unrecorded) \ {{}} :
    LET v == Verdict(S) IN v.why # "too few" \/ ~Tolerates(Members \ (In(v.new.st) \cap S))

\* A drive that is out of an array with one history is not refused as one of another history.
OneHistoryTakesBack ==
  mode # "on" \/ forked \/
    \A m \in Out(lab.st) : Lineage(lab, head[m]) = "older" \/ Shared(lab, m) > 0

\* A drive that may be taken back holds no acknowledged write that the members in sync lack.
ReturningHoldsNothingMore ==
  mode = "on" => \A m \in Members : Returns(lab, m) =>
    \A k \in In(lab.st) \ failed : data[m] \cap acked \subseteq data[k]
=============================================================================
