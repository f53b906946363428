package processes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// single says which pod has a volume that one pod may use, by driver and handle:
// several PersistentVolumes may lead to it.
type single map[string]types.UID

// take gives a pod the ReadWriteOncePod volumes that it mounts. As a kubelet does, it
// refuses while another pod has one, or has not ended yet.
func (p *Processes) take(pod types.UID, volumes map[string]*corev1.PersistentVolume) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var wanted []string
	for _, volume := range volumes {
		if volume.Spec.CSI == nil || !slices.Contains(volume.Spec.AccessModes, corev1.ReadWriteOncePod) {
			continue
		}
		key := volume.Spec.CSI.Driver + "^" + volume.Spec.CSI.VolumeHandle
		if other, taken := p.single[key]; taken && other != pod {
			return fmt.Errorf("volume %s is ReadWriteOncePod and in use by pod %s", volume.Name, other)
		}
		wanted = append(wanted, key)
	}
	for _, key := range wanted {
		p.single[key] = pod
	}
	return nil
}

// give takes back what take gave.
func (p *Processes) give(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, user := range p.single {
		if user == pod {
			delete(p.single, key)
		}
	}
}
