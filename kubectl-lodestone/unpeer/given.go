package unpeer

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// given returns why the volumes of a cluster must not be given up, nil if each was
// declared lost or is named: nobody is to give up many at once without having seen
// which. It is pure.
func given(cluster string, volumes []corev1.PersistentVolume, named []string) error {
	var left, unknown []string
	for _, volume := range volumes {
		if volume.Annotations[keys.Lost] == "" && !slices.Contains(named, volume.Name) {
			left = append(left, volume.Name)
		}
	}
	for _, name := range named {
		if !slices.ContainsFunc(volumes, func(volume corev1.PersistentVolume) bool { return volume.Name == name }) {
			unknown = append(unknown, name)
		}
	}
	switch {
	case len(unknown) > 0:
		return outcome.Refuse("--volume names %s, whose data is not in %q, so nothing was changed: correct the name", strings.Join(unknown, ", "), cluster)
	case len(left) > 0:
		return outcome.Refuse("%d volume(s) of %q were neither declared lost nor named, so nothing was changed: %s; where the cluster is gone for ever, declare each lost (kubectl lodestone lose pv NAME), where its data is to stay there without home, name it (%s)",
			len(left), cluster, strings.Join(left, ", "), fmt.Sprintf("--volume %s", left[0]))
	}
	return nil
}
