// Package homeepoch tells the home cluster that may act in a remote cluster from its copies: one that
// was cloned, or restored from a backup, has the same ID and credentials. Home keeps a Record of the Mark
// that it wrote last in the remote cluster, and of the one that it writes next, recorded before it is
// written. The mark changes with each renewal, so a copy of home knows an old one only, and acts no more.
// Decide is what the provisioner does next, Judge what the virtual node program may believe. Both are
// pure; package homegate refuses requests by what they say.
package homeepoch

import (
	"encoding/json"
	"fmt"
	"time"
)

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
