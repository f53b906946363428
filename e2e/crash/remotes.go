package crash

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

// east is the name of the second remote cluster, which only some worlds have.
const east = "east"

// remote is a remote cluster: west of a bed, whose home is not used if it is not the
// world's own.
type remote struct {
	*watched
	name string
	bed  *fabric.Fabric
}

// remote returns the remote cluster of a name, which the world must have.
func (w *World) remote(name string) *remote {
	return w.remotes[slices.IndexFunc(w.remotes, func(r *remote) bool { return r.name == name })]
}

// joinEast starts the second remote cluster.
func (w *World) joinEast(ctx context.Context, programs map[string]string) error {
	bed, err := fabric.Start(ctx, fabric.Options{ControllerManagerQPS: managerQPS, Agent: true, Programs: programs, Disks: w.Bed.Disks})
	if err != nil {
		return err
	}
	w.remotes = append(w.remotes, &remote{name: east, bed: bed})
	_, err = bed.StartAgent(ctx)
	return err
}

// serveHome has the agents of all remote clusters serve home, and returns the kubeconfigs
// that home has there.
func (w *World) serveHome(ctx context.Context) (map[string][]byte, error) {
	system, err := w.Bed.Home.Client().CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get namespace %s of home: %w", metav1.NamespaceSystem, err)
	}
	kubeconfigs := map[string][]byte{}
	for _, remote := range w.remotes {
		kubeconfigs[remote.name], err = remote.bed.Tenant(ctx, func(home *remotev1alpha1.HomeCluster) {
			home.Spec.ClusterUID = string(system.UID)
			home.Name = home.Spec.ClusterUID[:8]
			// Each case leaves a namespace there.
			home.Spec.Namespaces.Maximum = 5000
		})
		if err != nil {
			return nil, err
		}
	}
	return kubeconfigs, nil
}
