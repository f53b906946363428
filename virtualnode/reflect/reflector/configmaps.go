package reflector

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
)

// lookAtConfigMap brings the copy of a ConfigMap in step.
func (m *mirror) lookAtConfigMap(ctx context.Context, s *space, k key) error {
	if k.name == ledgerName {
		if len(m.needing(k)) == 0 {
			return nil
		}
		return m.foreign(s, k)
	}
	copier := copier[*corev1.ConfigMap]{
		kind: k.kind, homeID: m.session.HomeID, merge: copies.MergeConfigMap,
		client: m.session.Client.CoreV1().ConfigMaps(s.namespace),
	}
	have, exists := stored[*corev1.ConfigMap](s.configMaps, s.namespace, k.name)
	home, err := m.configMapLister.ConfigMaps(k.namespace).Get(k.name)
	if err != nil || copies.IsCopy(home) || len(m.needing(k)) == 0 {
		return copier.remove(ctx, have, exists)
	}
	if err := copier.put(ctx, have, exists, m.place(s).ConfigMap(home)); !errors.Is(err, errForeign) {
		return err
	}
	return m.foreign(s, k)
}
