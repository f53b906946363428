// Package homeepoch tells the home cluster that may act in a remote cluster from its copies: one that
// was cloned, or restored from a backup, has the same ID and credentials. Home keeps a Record of the Mark
// that it wrote last in the remote cluster, and of the one that it writes next, recorded before it is
// written. The mark changes with each renewal, so a copy of home knows an old one only, and acts no more.
// Decide is what the provisioner does next, Judge what the virtual node program may believe. Both are
// pure; clients.Gate refuses requests by what they say.
package homeepoch

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/podlease"
)

// Observation is what the provisioner knows of one remote cluster.
type Observation struct {
	// Record is home's, nil if there is none; Mark is that in the remote cluster.
	Record *Record
	Mark   Mark
	// Unreadable: the mark could not be read, or home may not write it.
	Unreadable bool
	// RemoteCluster and Peering are those of now; see Record.
	RemoteCluster, Peering string
	// Watched is for how long, by its own clock, this process has seen the mark as it is, Quiet for how long
	// it has seen no heartbeat of virtual nodes beside it. Those of a home in doubt send none.
	Watched, Quiet time.Duration
	// Arrived: this process has seen Record.Next there before.
	Arrived bool
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
// still for three times the Validity, and no heartbeat came either, and acts one Validity later: by then
// nobody else does. That leaves a copy that was taken while its original could not reach the remote cluster,
// or was stopped, and started before that renewed the mark again: both know the same mark, and the first to
// renew it goes on alone.
//
// A remote cluster that was restored from a backup shows an earlier mark than home's last. That is a doubt,
// except where home has renewed the mark no more than once since: then it may also be that the renewal did
// not arrive, unless this process has seen it there. Home goes on then.
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
	case o.Mark == record.Held && !o.Arrived:
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

// takeOver takes the mark from whoever held it, once nobody has changed the Lease for a while. If somebody
// does nevertheless, what was confirmed is void: it must not take effect whenever that one is cut off.
func (o Observation) takeOver(record Record) Decision {
	validity := Validity(o.Mark.period(o.Period))
	switch left := 3*validity - min(o.Watched, o.Quiet); {
	case o.Mark != record.Doubt.Found, o.Watched >= 3*validity && o.Quiet < validity:
		// Home's own virtual nodes have sent no heartbeat for longer: they noticed the doubt, too.
		return o.suspect(record, record.Doubt.Reason)
	case left > 0:
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

// Mark says, in a remote cluster, which home cluster acts there. The zero value is none.
type Mark struct {
	// Epoch rises when an administrator has confirmed a home cluster, Renewal with each renewal of the
	// mark within an epoch. Nonce is another random text in each mark.
	Epoch   int64  `json:"epoch"`
	Renewal int64  `json:"renewal"`
	Nonce   string `json:"nonce"`
	// Seconds is the period in which its holder renews the mark.
	Seconds float64 `json:"seconds"`
	// Released: its holder has ended its work in good order.
	Released bool `json:"released,omitempty"`
}

// None says that there is no mark.
func (m Mark) None() bool { return m == Mark{} }

// String is for messages.
func (m Mark) String() string {
	if m.None() {
		return "none"
	}
	return fmt.Sprintf("epoch %d, renewal %d", m.Epoch, m.Renewal)
}

// taken: the mark was written by a home cluster that took over and has not begun to act.
func (m Mark) taken() bool { return m.Epoch > 1 && m.Renewal == 0 }

// before: the mark was written earlier than the other, if both are of one home cluster.
func (m Mark) before(other Mark) bool {
	return m.Epoch < other.Epoch || m.Epoch == other.Epoch && m.Renewal < other.Renewal
}

// bounds of what a remote cluster may say.
const (
	maxCount  = 1 << 52
	maxPeriod = 10 * time.Minute
	maxNonce  = 64
)

// period is how often the holder of the mark renews it, and no less than least.
func (m Mark) period(least time.Duration) time.Duration {
	if m.Seconds > 0 && m.Seconds < maxPeriod.Seconds() {
		return max(least, time.Duration(m.Seconds*float64(time.Second)))
	}
	return least
}

// Encode returns the mark as the text of an annotation.
func (m Mark) Encode() (string, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode mark: %w", err)
	}
	return string(text), nil
}

// ParseMark reads the text of an annotation. What no home cluster writes becomes a mark that no home
// cluster has.
func ParseMark(text string) Mark {
	if text == "" {
		return Mark{}
	}
	var m Mark
	if len(text) > 1024 || json.Unmarshal([]byte(text), &m) != nil || m.Nonce == "" || len(m.Nonce) > maxNonce ||
		m.Epoch < 1 || m.Epoch > maxCount || m.Renewal < 0 || m.Renewal > maxCount {
		return Mark{Nonce: "unreadable"}
	}
	return m
}

// Record is what home knows of the mark in one remote cluster.
type Record struct {
	// RemoteCluster is the UID of the RemoteCluster, Peering tells which remote cluster, and which
	// HomeCluster there, the marks are of.
	RemoteCluster string `json:"remoteCluster"`
	Peering       string `json:"peering"`
	// Held is the mark that was last known to be there, Next the one that is written over it. Either
	// may be there: the answer to a write may have been lost.
	Held Mark `json:"held"`
	Next Mark `json:"next"`
	// Doubt is set while home must not act there, until an administrator confirms it.
	Doubt *Doubt `json:"doubt,omitempty"`
	// PodLease is the lease that home asks for with each renewal; nil: it never asked for one.
	PodLease *podlease.Record `json:"podLease,omitempty"`
}

// Doubt is why home must not act in a remote cluster.
type Doubt struct {
	// ID is what an administrator confirms: it is another one in each doubt.
	ID     string `json:"id"`
	Reason string `json:"reason"`
	// Found is the mark that was found.
	Found Mark `json:"found"`
	// Since is when it was found, by the clock of home.
	Since time.Time `json:"since"`
}

// The Secret, in the namespace where Lodestone runs, that has the Record of a remote cluster.
const (
	SecretType = "lodestone.dev/home-epoch"
	SecretKey  = "record"
)

// SecretName returns the name of the Secret with the Record of a remote cluster.
func SecretName(cluster string) string { return "home-epoch-" + cluster }

// Reasons of a Doubt.
const (
	// RemoteAhead: the mark there is later than this home's.
	RemoteAhead = "RemoteAhead"
	// RemoteBehind: it is earlier.
	RemoteBehind = "RemoteBehind"
	// MarkMissing: home wrote one, and there is none.
	MarkMissing = "MarkMissing"
	// TwoHolders: two home clusters renewed it.
	TwoHolders = "TwoHolders"
	// NoRecord: there is one that this home knows nothing of.
	NoRecord = "NoRecord"
)

// Doubtful says whether a reason of condition HomeInForce is that of a Doubt.
func Doubtful(reason string) bool {
	switch reason {
	case RemoteAhead, RemoteBehind, MarkMissing, TwoHolders, NoRecord:
		return true
	}
	return false
}

// Encode returns the record as text.
func (r Record) Encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode home epoch: %w", err)
	}
	return text, nil
}

// ParseRecord reads the text of a record.
func ParseRecord(text []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read home epoch: %w", err)
	}
	return &r, nil
}

// established: home has seen a mark of its own there.
func (r *Record) established() bool { return r != nil && (!r.Held.None() || r.Doubt != nil) }

// Validity is for how long home may act after it has renewed its mark, if the mark is renewed in
// this period: some renewals may fail.
func Validity(period time.Duration) time.Duration { return max(3*period, leastValidity) }

const leastValidity = 10 * time.Second
