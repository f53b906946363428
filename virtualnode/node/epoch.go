package node

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// NotInForce is the reason of a cluster in which a copy of this home cluster may act.
const NotInForce = "HomeNotInForce"

// epoch is what this process knows of home's mark in a remote cluster. It lasts longer than a session.
type epoch struct {
	mark homeepoch.Mark
	// since is since when the mark has been as it is, by the clock of this process; zero: it was never read.
	since time.Time
	// renewed: home itself has renewed the mark since then.
	renewed bool
	// watching is since when home has not been known to act there.
	watching time.Time
}

// observe notes the mark, and returns for how long it has been there.
func (e *epoch) observe(record *homeepoch.Record, mark homeepoch.Mark, now time.Time) time.Duration {
	if e.since.IsZero() || e.mark != mark {
		// A copy of home would have written a mark that this home has not recorded.
		e.renewed = !e.since.IsZero() && homeepoch.Explains(record, mark)
		e.mark, e.since = mark, now
	}
	return now.Sub(e.since)
}

// checkEpoch opens the session's gate if this home cluster acts there. Otherwise it returns, as a word and a
// sentence, why not; both are empty while the last answer is still valid. Unsure says that nothing is known
// yet.
func (m *Manager) checkEpoch(ctx context.Context, p *prober) (reason, sentence string, unsure bool, err error) {
	began := time.Now()
	mark, unreadable, err := p.mark(ctx)
	if err != nil {
		return "", "", false, err
	}
	record, remote := m.config.Record(ctx)
	o := homeepoch.Observation{Record: record, Mark: mark, Unreadable: unreadable, RemoteCluster: remote, Period: m.config.Probe}
	if !unreadable {
		o.Watched = m.epoch.observe(record, mark, time.Now())
	}
	validity := homeepoch.Validity(m.config.Probe)
	switch homeepoch.Judge(o, m.epoch.renewed) {
	case homeepoch.InForce:
		m.epoch.watching = time.Time{}
		p.gate.OpenUntil(began.Add(validity))
		return "", "", false, nil
	case homeepoch.Inert:
		p.gate.Close()
	case homeepoch.Unknown:
		if m.epoch.watching.IsZero() {
			m.epoch.watching = began
		}
		if p.gate.Open() || time.Since(m.epoch.watching) < validity {
			return "", "", true, nil
		}
	}
	return NotInForce, fmt.Sprintf("nothing is changed in cluster %s, for a copy of this home cluster may act there: see condition "+
		"HomeInForce of RemoteCluster %s", m.cluster, m.cluster), false, nil
}

// mark reads the mark of home in the remote cluster. The provisioner writes it.
func (p *prober) mark(ctx context.Context) (mark homeepoch.Mark, unreadable bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	lease, err := p.client.CoordinationV1().Leases(keys.TenantPrefix+p.homeID).Get(ctx, keys.HeartbeatLease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return homeepoch.Mark{}, true, nil
	case err != nil:
		return homeepoch.Mark{}, false, err
	}
	return homeepoch.ParseMark(lease.Annotations[keys.HomeEpoch]), false, nil
}
