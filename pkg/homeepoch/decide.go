package homeepoch

import "time"

// Observation is what the provisioner knows of one remote cluster.
type Observation struct {
	// Record is home's, nil if there is none; Mark is that in the remote cluster.
	Record *Record
	Mark   Mark
	// Unreadable: the mark could not be read, or home may not write it.
	Unreadable bool
	// RemoteCluster and Peering are those of now; see Record.
	RemoteCluster, Peering string
	// Watched is for how long, by its own clock, this process has seen the mark as it is.
	Watched time.Duration
	// Holding: this process has renewed the mark and acted.
	Holding bool
	// Confirmed is the ID of the doubt that an administrator has confirmed.
	Confirmed string
	// Period is how often home renews the mark.
	Period time.Duration
	// Nonce is a random text that was never used.
	Nonce string
}

// Verb is what to do.
type Verb int

const (
	// Wait does nothing for now.
	Wait Verb = iota
	// Write stores Decision.Record, if it has changed, and then writes its Next mark.
	Write
	// Suspect stores Decision.Record, which has the doubt.
	Suspect
	// Stay does nothing until an administrator confirms.
	Stay
	// Unkept acts without a mark, for the remote cluster lets home keep none.
	Unkept
)

// Decision is what to do next.
type Decision struct {
	Do     Verb
	Record Record
	// Acts: once the mark is written home may act.
	Acts bool
	// Left is for how long yet the mark must stand still.
	Left time.Duration
}

// Decide returns what to do next.
//
// Of home clusters with a common past at most one acts at a time. A home acts for the Validity of its
// mark after it has sent a renewal that succeeded. Each renewal changes the mark, so a copy of home finds
// another mark than the one it has recorded as soon as the original has renewed it once since the copy was
// taken, and is then in doubt for ever. A copy that finds the recorded one waits for three periods, in which
// its original would renew it. One that an administrator confirms takes over only when the mark has stood
// still for three times the Validity, and acts one Validity later: by then nobody else does. That leaves
// a copy that was taken while its original could not reach the remote cluster, and started
// before it could again: both know the same mark, and the first to renew it goes on alone.
func Decide(o Observation) Decision {
	record := o.record()
	if o.Unreadable {
		if !record.established() {
			return Decision{Do: Unkept}
		}
		if record.Doubt != nil {
			return Decision{Do: Stay, Record: *record}
		}
		return Decision{Do: Wait, Record: *record}
	}
	switch {
	case record == nil && o.Mark.None():
		return o.begin()
	case record == nil:
		return o.suspect(Record{RemoteCluster: o.RemoteCluster, Peering: o.Peering}, NoRecord)
	case record.Doubt != nil && (record.Doubt.ID == "" || record.Doubt.ID != o.Confirmed):
		return o.stay(*record)
	case record.Doubt != nil:
		return o.takeOver(*record)
	case record.Peering != o.Peering && o.Mark.None():
		// The administrator of the remote cluster has admitted home anew.
		return o.begin()
	case record.Peering != o.Peering:
		return o.suspect(*record, NoRecord)
	case o.Mark == record.Next:
		return o.renew(*record)
	case o.Mark == record.Held:
		return o.again(*record)
	}
	return o.suspect(*record, mismatch(*record, o.Mark))
}

// record returns home's record if it is of this RemoteCluster. That of an earlier one, which went while home
// could not take its mark away, counts if it has the mark that is there.
func (o Observation) record() *Record {
	if o.Record == nil || o.Record.RemoteCluster == o.RemoteCluster {
		return o.Record
	}
	if o.Unreadable || !Explains(o.Record, o.Mark) {
		return nil
	}
	adopted := *o.Record
	adopted.RemoteCluster, adopted.Peering = o.RemoteCluster, o.Peering
	return &adopted
}

func mismatch(record Record, mark Mark) string {
	switch {
	case mark.None():
		return MarkMissing
	case record.Next.before(mark):
		return RemoteAhead
	case mark.before(record.Next):
		return RemoteBehind
	}
	return TwoHolders
}

// begin writes the first mark.
func (o Observation) begin() Decision {
	return Decision{Do: Write, Acts: true, Record: Record{RemoteCluster: o.RemoteCluster, Peering: o.Peering, Next: o.mark(1, 0)}}
}

func (o Observation) mark(epoch, renewal int64) Mark {
	return Mark{Epoch: epoch, Renewal: renewal, Nonce: o.Nonce, Seconds: o.Period.Seconds()}
}

func (o Observation) suspect(record Record, reason string) Decision {
	record.Doubt = &Doubt{ID: o.Nonce, Reason: reason, Found: o.Mark}
	return Decision{Do: Suspect, Record: record}
}

// stay notes which mark is to be confirmed: one that stands still.
func (o Observation) stay(record Record) Decision {
	if o.Mark != record.Doubt.Found && o.Watched >= 3*Validity(o.Mark.period(o.Period)) {
		return o.suspect(record, record.Doubt.Reason)
	}
	return Decision{Do: Stay, Record: record}
}

// takeOver takes the mark from whoever held it, once it has stood still. If somebody renews it
// nevertheless, what was confirmed is void: it must not take effect whenever that one is cut off.
func (o Observation) takeOver(record Record) Decision {
	if o.Mark != record.Doubt.Found {
		return o.suspect(record, record.Doubt.Reason)
	}
	if left := 3*Validity(o.Mark.period(o.Period)) - o.Watched; left > 0 {
		return Decision{Do: Wait, Record: record, Left: left}
	}
	epoch := max(o.Mark.Epoch, record.Next.Epoch, record.Held.Epoch)
	return Decision{Do: Write, Record: Record{RemoteCluster: o.RemoteCluster, Peering: o.Peering, Held: o.Mark,
		// Never 1, which is that of a home cluster that nobody was there before.
		Next: o.mark(max(epoch, 1)+1, 0)}}
}

// renew goes on from the mark that home wrote.
func (o Observation) renew(record Record) Decision {
	var pause time.Duration
	switch {
	case o.Mark.taken():
		pause = Validity(o.Mark.period(o.Period))
	case o.Holding, o.Mark.Released:
	default:
		pause = 3 * o.Mark.period(o.Period)
	}
	if left := pause - o.Watched; left > 0 {
		return Decision{Do: Wait, Record: record, Left: left}
	}
	record.Held, record.Next = o.Mark, o.mark(o.Mark.Epoch, o.Mark.Renewal+1)
	return Decision{Do: Write, Record: record, Acts: true}
}

// again writes the mark that was recorded, and did not arrive or was not sent.
func (o Observation) again(record Record) Decision {
	var pause time.Duration
	switch {
	case record.Next.taken():
		pause = 3 * Validity(o.Mark.period(o.Period))
	case o.Holding, o.Mark.Released, record.Held.None():
	default:
		pause = 3 * o.Mark.period(o.Period)
	}
	if left := pause - o.Watched; left > 0 {
		return Decision{Do: Wait, Record: record, Left: left}
	}
	return Decision{Do: Write, Record: record, Acts: !record.Next.taken() && !record.Next.Released}
}

// Release returns the record with which the mark says that its holder has ended in good order; false
// if the last mark is not known to have arrived.
func Release(record Record, mark Mark, nonce string) (Record, bool) {
	if record.Doubt != nil || mark.None() || mark != record.Next || mark.taken() {
		return record, false
	}
	record.Held, record.Next = mark, Mark{Epoch: mark.Epoch, Renewal: mark.Renewal + 1, Nonce: nonce, Seconds: mark.Seconds, Released: true}
	return record, true
}

// Verdict is what a program may believe that only reads.
type Verdict int

const (
	// Unknown means that it is to look again. It may go on for the Validity since the last InForce.
	Unknown Verdict = iota
	// InForce means that home may act.
	InForce
	// Inert means that home must not act.
	Inert
)

// Judge says whether home may act in a remote cluster, to a program that leaves the mark to the
// provisioner. Renewed says that it has seen home itself renew the mark.
func Judge(o Observation, renewed bool) Verdict {
	record := o.Record
	if record != nil && record.RemoteCluster != o.RemoteCluster {
		record = nil
	}
	switch {
	case record != nil && record.Doubt != nil:
		return Inert
	case o.Unreadable && record.established():
		return Unknown
	case o.Unreadable:
		return InForce
	case record == nil && o.Mark.None():
		// No provisioner of this version has been here.
		return InForce
	case record == nil, !record.explains(o.Mark), record.Next.taken():
		return Unknown
	case renewed, record.Held.None(), o.Watched >= 3*o.Mark.period(o.Period):
		return InForce
	}
	return Unknown
}

// explains says whether the mark is one that home wrote or found.
func (r *Record) explains(mark Mark) bool { return mark == r.Next || mark == r.Held }

// Explains says whether the record of home has this mark, which is none of another home.
func Explains(record *Record, mark Mark) bool {
	return record != nil && !mark.None() && record.Doubt == nil && record.explains(mark)
}
