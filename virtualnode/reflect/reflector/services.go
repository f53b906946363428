package reflector

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
)

// linger is how long Services stay in a namespace after its last pod has gone:
// the next one is often on its way.
const linger = 30 * time.Second

// usage reports whether pods are in a namespace, and if not, for how long its
// Services stay nevertheless.
func (m *mirror) usage(s *space) (used bool, left time.Duration) {
	used = len(m.needing(key{kind: spaceKind, namespace: s.home})) > 0
	s.mu.Lock()
	defer s.mu.Unlock()
	if used {
		s.idleSince = time.Time{}
		return true, 0
	}
	if s.idleSince.IsZero() {
		s.idleSince = m.Clock.Now()
	}
	return false, linger - m.Clock.Since(s.idleSince)
}

// lookAtSpace has the Services of a namespace looked at when its first pod came
// or its last one went.
func (m *mirror) lookAtSpace(s *space) {
	used, _ := m.usage(s)
	s.mu.Lock()
	changed := used != s.used
	s.used = used
	s.mu.Unlock()
	if changed {
		m.lookAtServices(s)
	}
}

// homeSliceChanged has the Service looked at whose endpoints changed.
func (m *mirror) homeSliceChanged(slice *discoveryv1.EndpointSlice) {
	if service := slice.Labels[discoveryv1.LabelServiceName]; service != "" && m.session.Network == v1alpha1.Routed {
		m.queue.Add(key{serviceKind, slice.Namespace, service})
	}
}

// lookAtService brings the copy of a Service in step, and those of its
// EndpointSlices.
func (m *mirror) lookAtService(ctx context.Context, s *space, k key) (time.Duration, error) {
	have, exists := stored[*corev1.Service](s.services, s.namespace, k.name)
	slices, err := s.slices.GetIndexer().ByIndex(serviceIndex, s.namespace+"/"+k.name)
	if err != nil {
		return 0, err
	}
	used, left := m.usage(s)
	there := exists || len(slices) > 0
	home, err := m.serviceLister.Services(k.namespace).Get(k.name)
	wanted := err == nil && copies.TravelsService(home) && (used || there && left > 0)
	copier := copier[*corev1.Service]{
		kind: k.kind, homeID: m.session.HomeID, merge: copies.MergeService,
		client: m.session.Client.CoreV1().Services(s.namespace),
	}
	if !wanted {
		return 0, errors.Join(m.settleSlices(ctx, s, nil, slices), copier.remove(ctx, have, exists))
	}
	if err := copier.put(ctx, have, exists, m.place(s).Service(home)); err != nil {
		if errors.Is(err, errForeign) {
			err = m.foreign(s, k)
		}
		return 0, err
	}
	return max(left, 0), m.settleSlices(ctx, s, m.wantedSlices(s, home), slices)
}

// wantedSlices returns the copies of the EndpointSlices of a Service: none where
// pods there cannot reach the addresses.
func (m *mirror) wantedSlices(s *space, home *corev1.Service) []*discoveryv1.EndpointSlice {
	if m.session.Network != v1alpha1.Routed || home.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	found, _ := m.slices.GetIndexer().ByIndex(serviceIndex, home.Namespace+"/"+home.Name)
	var result []*discoveryv1.EndpointSlice
	for _, obj := range found {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			if wanted := m.place(s).Slice(slice, m.session.Node); wanted != nil {
				result = append(result, wanted)
			}
		}
	}
	return result
}

// settleSlices goes from the EndpointSlices that are there to those wanted.
func (m *mirror) settleSlices(ctx context.Context, s *space, wanted []*discoveryv1.EndpointSlice, there []any) error {
	copier := copier[*discoveryv1.EndpointSlice]{
		kind: "EndpointSlice", homeID: m.session.HomeID, merge: copies.MergeSlice,
		client: m.session.Client.DiscoveryV1().EndpointSlices(s.namespace),
	}
	var errs []error
	keep := map[string]bool{}
	for _, want := range wanted {
		keep[want.Name] = true
		have, exists := stored[*discoveryv1.EndpointSlice](s.slices, s.namespace, want.Name)
		err := copier.put(ctx, have, exists, want)
		if errors.Is(err, errForeign) {
			// Nobody else makes such names by accident.
			klog.FromContext(ctx).Info("EndpointSlice that is not ours is left alone", "endpointSlice", klog.KObj(want))
			err = nil
		}
		errs = append(errs, err)
	}
	for _, obj := range there {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && !keep[slice.Name] {
			errs = append(errs, copier.remove(ctx, slice, true))
		}
	}
	return errors.Join(errs...)
}
