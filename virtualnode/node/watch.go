package node

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// probe asks the cluster how it is until ctx ends; it returns ErrReturned when the
// cluster answers again after it was silent. Found is called whenever there is
// a HomeCluster of ours.
func (m *Manager) probe(ctx context.Context, p *prober, found func()) error {
	ticker := time.NewTicker(m.config.Probe)
	defer ticker.Stop()
	for {
		answered, returned := m.look(ctx, p)
		m.Poke()
		if returned {
			return ErrReturned
		}
		if m.wrong() {
			return errUnwanted
		}
		if answered {
			found()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look asks once. answered says that there is a HomeCluster of ours, returned that
// the cluster was silent before.
func (m *Manager) look(ctx context.Context, p *prober) (answered, returned bool) {
	err := p.ready(ctx)
	var home *remotev1alpha1.HomeCluster
	lacking := ""
	if err == nil {
		home, err = p.home(ctx)
		if lacking = missing(m.cluster, p.homeID, err); lacking != "" {
			home, err = nil, nil
		}
	}
	version, uid := "", ""
	if err == nil && m.unversioned() {
		version = p.version(ctx)
	}
	if err == nil {
		uid, err = p.identity(ctx)
	}
	reason, unwanted := "", ""
	if err == nil {
		reason, unwanted = m.config.Unwanted(uid)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			m.health.Failures++
			m.health.Reason, m.health.Problem = failure(m.cluster, err)
		}
		return false, false
	}
	returned = m.health.Silent() && m.health.Answered
	if version != "" {
		m.version = version
	}
	m.health.Answered, m.health.Failures = true, 0
	m.health.Missing, m.health.Home = lacking, home
	m.health.Unwanted, m.health.UnwantedReason = unwanted, reason
	return home != nil, returned
}

// wrong reports whether work goes on for a cluster that must not be used, other than
// to end what was begun there.
func (m *Manager) wrong() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begun && m.health.Unwanted != "" && !usable(m.health, m.retired)
}

func (m *Manager) unversioned() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.health.Answered || m.version == ""
}

// watchHome follows the HomeCluster of ours until ctx ends.
func (m *Manager) watchHome(ctx context.Context, s *session.Session) {
	informer := remoteapi.NewInformer(s.Remote.HomeClusters(), &remotev1alpha1.HomeCluster{}, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.HomeID).String()
	}, cache.Indexers{})
	seen := func(obj any) {
		home, ok := obj.(*remotev1alpha1.HomeCluster)
		if !ok || home.Name != s.HomeID {
			return
		}
		m.mu.Lock()
		m.health.Home, m.health.Missing = home, ""
		m.mu.Unlock()
		m.Poke()
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, obj any) { seen(obj) }})
	if err != nil {
		// Probes see the same, a little later.
		klog.FromContext(ctx).Error(err, "The HomeCluster is not watched")
		return
	}
	informer.RunWithContext(ctx)
}
