package crash

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// importFlows make the volume of a real claim that of a virtual claim. The plugin does
// that: its calls meet the faults, and it is run again until it is done.
func importFlows() []Flow {
	local := Flow{
		Name: "import-local", Of: Plugin, Few: true,
		Setup: func(ctx context.Context, w *World, c *Case) error {
			return w.createReal(ctx, w.Bed.Home, c, fabric.HomeNow)
		},
		Ready: func(_ *World, _ *Case, v *View) error {
			if claim := v.Claim(data); claim == nil || claim.Status.Phase != corev1.ClaimBound || len(v.Volumes) != 1 || v.Volumes[0].Status.Phase != corev1.VolumeBound {
				return errors.New("the real claim is not bound")
			}
			return nil
		},
		Play: administer(importing),
		Want: func(w *World, c *Case, v *View) error {
			return all(c.administered(), w.bound(v, data, keys.Home), once(c, 1, 1), tookOver(v, c.before.Volumes[0]))
		},
	}
	remote := Flow{
		Name: "import-remote", Of: Plugin, Few: true,
		Setup: func(ctx context.Context, w *World, c *Case) error {
			return w.createReal(ctx, w.Bed.West, c, fabric.WestNow)
		},
		Ready: func(w *World, _ *Case, v *View) error {
			if len(v.Backings) != 1 || v.Backings[0].Status.Phase != corev1.ClaimBound || len(v.Reals) != 1 || v.Reals[0].Status.Phase != corev1.VolumeBound {
				return errors.New("the real claim is not bound")
			}
			remote, err := w.Bed.Remotes.Get(context.Background(), "west", metav1.GetOptions{})
			if err == nil && remote.Status.ClusterUID == "" {
				err = errors.New("home does not know which cluster west is")
			}
			return err
		},
		Play: administer(func(c *Case) []string {
			return append(importing(c), "--cluster=west", "--remote-context=west")
		}),
		Want: func(w *World, c *Case, v *View) error {
			if err := all(c.administered(), w.bound(v, data, "west"), same(c, v), once(c, 0, 1), tookOver(v, c.before.Reals[0])); err != nil {
				return err
			}
			if v.Backings[0].UID != c.before.Backings[0].UID || v.Backings[0].Annotations[keys.Import] != "" {
				return errors.New("the claim in west is another, or says that it is being imported")
			}
			return nil
		},
	}
	return []Flow{local, remote}
}

// importing is the command of an import.
func importing(c *Case) []string {
	return []string{"import", "pvc", data, "-n", c.Namespace, "--class", now, "--yes"}
}

// createReal makes a claim of a real class, which binds at once.
func (w *World) createReal(ctx context.Context, cluster *testbed.Cluster, c *Case, class string) error {
	made, err := cluster.Client().CoreV1().PersistentVolumeClaims(c.Namespace).Create(ctx, fabric.NewClaim(c.Namespace, data, class), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make real claim %s/%s in %s: %w", c.Namespace, data, cluster.Name(), err)
	}
	learn(made, cluster == w.Bed.Home, w.ledger)
	return nil
}

// tookOver says what is wrong with an import that is done: the one real volume must be the
// one that there was, as it was, and nothing else may be there.
func tookOver(v *View, before *corev1.PersistentVolume) error {
	if len(v.Claims) != 1 || len(v.Backings) != 1 || len(v.Volumes) != 1 || len(v.Reals) != 1 {
		return fmt.Errorf("there are %d claims, %d backing claims, %d volumes and %d real volumes", len(v.Claims), len(v.Backings), len(v.Volumes), len(v.Reals))
	}
	real := v.Reals[0]
	switch {
	case real.UID != before.UID:
		return fmt.Errorf("the real volume is %s, not %s", real.Name, before.Name)
	case real.Spec.PersistentVolumeReclaimPolicy != before.Spec.PersistentVolumeReclaimPolicy:
		return fmt.Errorf("the real volume has policy %s", real.Spec.PersistentVolumeReclaimPolicy)
	case real.Annotations[keys.Import] != "" || v.Claims[0].Annotations[keys.Import] != "":
		return errors.New("the import is recorded still")
	}
	return nil
}
