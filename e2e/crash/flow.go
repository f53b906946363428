package crash

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Flow is one thing that users ask for, and what must have come of it in the end
// whatever happens to the program meanwhile. To sweep another flow, add it to
// Flows. Its functions may be called for many cases at once.
type Flow struct {
	Name string
	// Setup makes what is there before, nil for nothing; Ready says what is still
	// missing of that.
	Setup func(ctx context.Context, w *World, c *Case) error
	Ready func(w *World, c *Case, v *View) error
	// Act is what the user does. From then on calls count.
	Act func(ctx context.Context, w *World, c *Case) error
	// Play, if not nil, is what others do in turn, as a scheduler; it is called
	// again and again.
	Play func(ctx context.Context, w *World, c *Case, v *View) error
	// Early is true if they do so during the set-up too.
	Early bool
	// Want says what is wrong with the end, nil if nothing.
	Want func(w *World, c *Case, v *View) error
	// Alone is true for a flow whose calls are also about what cases share: each
	// of its cases runs alone.
	Alone bool
	// Few is true for a flow of whose cases only some run at once: each asks the API servers
	// for more than others do.
	Few bool
	// Reads, if not 0, is how many reads of each kind meet a fault, in each phase of a move: a
	// flow that looks at everything again before each step reads the same again and again.
	Reads int
	// Moves is true for a flow that needs a world with movers.
	Moves bool
	// Wide is true for one that needs a second remote cluster too.
	Wide bool
	// Stored is true for one whose moves go through an object store.
	Stored bool
	// Lied is true for one whose remote cluster lies too: it has no data that it could lie away.
	Lied bool
	// Of is the program whose calls count and meet faults; the provisioner by default.
	Of Subject
}

// data is the name of the claims of most cases.
const data = "data"

// place is where a flow has its volume.
type place struct{ name, node, cluster string }

var places = []place{{"local", "home-1", keys.Home}, {"remote", fabric.WestNode, "west"}}

// served is the set-up of a case with a claim that has its volume, of a real class
// that binds at once.
func served(f Flow, p place) Flow {
	f.Setup = func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, now, p.node) }
	f.Ready = func(w *World, _ *Case, v *View) error { return w.bound(v, data, p.cluster) }
	return f
}

func allFlows() []Flow { return append(append(Flows(), agentFlows()...), moveFlows()...) }

// Flows returns the flows of the provisioner and of the plugin that move nothing.
func Flows() []Flow {
	var flows []Flow
	flows = append(flows, provisionFlows()...)
	flows = append(flows, rescheduleFlows()...)
	flows = append(flows, endFlows()...)
	flows = append(flows, changeFlows()...)
	flows = append(flows, attributesFlows()...)
	flows = append(flows, snapshotFlows()...)
	flows = append(flows, hurtFlows()...)
	flows = append(flows, importFlows()...)
	return append(flows, clusterFlows()...)
}

// FlowOf returns the flow of a name.
func FlowOf(name string) (*Flow, error) {
	for _, f := range allFlows() {
		if f.Name == name {
			return &f, nil
		}
	}
	return nil, fmt.Errorf("there is no flow %q", name)
}

// provisionFlows give a new claim its volume.
func provisionFlows() []Flow {
	provision := func(name, class string, p place) Flow {
		return Flow{
			Name: name,
			Act:  func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, class, p.node) },
			Want: func(w *World, c *Case, v *View) error {
				return all(w.bound(v, data, p.cluster), once(c, 1, 1))
			},
		}
	}
	remoteWait := provision("provision-remote-wait", wait, places[1])
	remoteWait.Play = chooseInWest
	flows := []Flow{
		provision("provision-local", now, places[0]),
		provision("provision-remote", now, places[1]),
		remoteWait,
	}
	for _, p := range places {
		// A copy of a claim is in the cluster of its source.
		copied := served(Flow{
			Name: "copy-" + p.name,
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.create(ctx, c, "copy", now, p.node, func(claim *corev1.PersistentVolumeClaim) {
					claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: data}
				})
			},
			Want: func(w *World, c *Case, v *View) error {
				return all(w.bound(v, data, p.cluster), w.bound(v, "copy", p.cluster), w.copied(c, v), once(c, 2, 2))
			},
		}, p)
		// The claim is deleted while its real volume is not made yet.
		abandoned := Flow{
			Name: "abandon-" + p.name,
			Setup: func(ctx context.Context, w *World, c *Case) error {
				return w.create(ctx, c, data, stuck, p.node)
			},
			Ready: func(_ *World, _ *Case, v *View) error { return hasBacking(v) },
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.delete(ctx, w.Bed.Home, c.Namespace, data)
			},
			Want: func(w *World, c *Case, v *View) error { return all(w.gone(c, v), once(c, 1, 1)) },
		}
		flows = append(flows, copied, abandoned)
	}
	return flows
}

// chooseInWest chooses a node for shadows, as west's scheduler does once a pod
// there uses them: when their virtual claims are bound.
func chooseInWest(ctx context.Context, w *World, _ *Case, v *View) error {
	claim := v.Claim(data)
	if claim == nil || claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	for _, b := range v.Backings {
		if v.clusterOf(b) == "west" && b.Annotations[keys.SelectedNode] == "" && b.DeletionTimestamp == nil {
			return w.choose(ctx, w.Bed.West, b, "west-1")
		}
	}
	return nil
}

func hasBacking(v *View) error {
	if len(v.Backings) == 0 {
		return errors.New("there is no backing claim")
	}
	return nil
}

// copied says whether the copy's data came from its source.
func (w *World) copied(c *Case, v *View) error {
	sources := map[string]string{}
	for _, storage := range []*fakeprovisioner.Provisioner{w.Bed.HomeStorage, w.Bed.WestStorage} {
		for _, volume := range storage.Volumes() {
			sources[volume.Handle] = volume.Source
		}
	}
	_, _, source := v.of(c.uid(data))
	_, _, made := v.of(c.uid("copy"))
	if len(source) != 1 || len(made) != 1 || sources[made[0].Spec.CSI.VolumeHandle] != source[0].Spec.CSI.VolumeHandle {
		return errors.New("the copy's data is not that of its source")
	}
	return nil
}

// rescheduleFlows send a claim elsewhere.
func rescheduleFlows() []Flow {
	home := places[0]
	endsAtHome := func(backings int) func(*World, *Case, *View) error {
		return func(w *World, c *Case, v *View) error {
			return all(w.bound(v, data, home.cluster), once(c, backings, 1))
		}
	}
	return []Flow{
		{
			// The quota of the namespace in west leaves no room.
			Name:  "reschedule-refused",
			Setup: func(ctx context.Context, w *World, c *Case) error { return w.limit(ctx, c) },
			Ready: func(w *World, c *Case, _ *View) error { return w.limited(c) },
			Act:   func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, now, "west") },
			Play:  chooseHome, Want: endsAtHome(1),
		},
		{
			// The real provisioner finds no room on the node.
			Name: "reschedule-full",
			Act:  func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, full, fullNode) },
			// What the place said may be lost between two steps: then it is asked again.
			Play: chooseHome, Want: endsAtHome(3),
		},
		{
			// The scheduler chooses another node while the volume is not made.
			Name:  "reschedule-moved",
			Setup: func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, moved, "west") },
			Ready: func(_ *World, _ *Case, v *View) error { return hasBacking(v) },
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.choose(ctx, w.Bed.Home, w.view(c).Claim(data), home.node)
			},
			Play: chooseHome, Want: endsAtHome(2),
		},
	}
}

// chooseHome chooses a node at home for a claim that has none, as the scheduler
// does once the first choice was refused.
func chooseHome(ctx context.Context, w *World, _ *Case, v *View) error {
	return w.schedule(ctx, v, "home-1")
}

// schedule chooses a node for a claim that has none.
func (w *World) schedule(ctx context.Context, v *View, node string) error {
	claim := v.Claim(data)
	if claim == nil || claim.Spec.VolumeName != "" {
		return nil
	}
	if _, chosen := claim.Annotations[keys.SelectedNode]; chosen {
		return nil
	}
	return w.choose(ctx, w.Bed.Home, claim, node)
}

const quota = "none"

// limit leaves no room for claims in a case's namespace in west.
func (w *World) limit(ctx context.Context, c *Case) error {
	_, err := w.Bed.West.Client().CoreV1().ResourceQuotas(c.Namespace).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: quota},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the quota of %s: %w", c.Namespace, err)
	}
	return nil
}

func (w *World) limited(c *Case) error {
	limit, err := w.Bed.West.Client().CoreV1().ResourceQuotas(c.Namespace).Get(context.Background(), quota, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at the quota of %s: %w", c.Namespace, err)
	}
	if len(limit.Status.Hard) == 0 {
		return errors.New("the quota is not in force yet")
	}
	return nil
}

// importFlows make the volume of a real claim that of a virtual claim. The plugin does
// that: its calls meet the faults, and it is run again until it is done.
func importFlows() []Flow {
	local := Flow{
		Name: "import-local", Of: Plugin, Few: true,
		Setup: func(ctx context.Context, w *World, c *Case) error {
			return w.createReal(ctx, w.Bed.Home, c, fabric.HomeNow)
		},
		Ready: func(_ *World, _ *Case, v *View) error {
			if claim := v.Claim(data); claim == nil || claim.Status.Phase != corev1.ClaimBound || len(v.Volumes) != 1 ||
				v.Volumes[0].Status.Phase != corev1.VolumeBound {
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
			if len(v.Backings) != 1 || v.Backings[0].Status.Phase != corev1.ClaimBound || len(v.Reals) != 1 ||
				v.Reals[0].Status.Phase != corev1.VolumeBound {
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
	made, err := cluster.Client().CoreV1().PersistentVolumeClaims(c.Namespace).Create(ctx, fabric.NewClaim(c.Namespace, data, class),
		metav1.CreateOptions{})
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
		return fmt.Errorf("there are %d claims, %d backing claims, %d volumes and %d real volumes", len(v.Claims), len(v.Backings),
			len(v.Volumes), len(v.Reals))
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

// endFlows end a claim that has its volume.
func endFlows() []Flow {
	var flows []Flow
	for _, p := range places {
		deleted := func(ctx context.Context, w *World, c *Case) error {
			return w.delete(ctx, w.Bed.Home, c.Namespace, data)
		}
		flows = append(flows,
			served(Flow{
				Name: "delete-" + p.name, Act: deleted,
				Want: func(w *World, c *Case, v *View) error { return all(w.gone(c, v), once(c, 1, 1)) },
			}, p),
			// Once the volume is bound, nothing may be done about it any more: what counts
			// is what comes before.
			Flow{
				Name: "retain-" + p.name,
				Act:  func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, retain, p.node) },
				Play: deleteBound,
				Want: func(w *World, c *Case, v *View) error { return all(w.retained(c, v), once(c, 1, 1)) },
			})
	}
	return flows
}

// deleteBound deletes the claim as soon as it is bound.
func deleteBound(ctx context.Context, w *World, c *Case, v *View) error {
	claim := v.Claim(data)
	if claim == nil || claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil {
		return nil
	}
	return w.delete(ctx, w.Bed.Home, c.Namespace, data)
}

// retained says what is wrong with a volume that must outlive its claim.
func (w *World) retained(c *Case, v *View) error {
	if v.Claim(data) != nil {
		return fmt.Errorf("claim %s is still there", data)
	}
	backings, volumes, reals := v.of(c.uid(data))
	if len(volumes) != 1 || volumes[0].Status.Phase != corev1.VolumeReleased || volumes[0].DeletionTimestamp != nil {
		return fmt.Errorf("there is not just one volume that is released: %s", brief(volumes))
	}
	if len(backings) != 1 || len(reals) != 1 || backings[0].DeletionTimestamp != nil || reals[0].Status.Phase != corev1.VolumeBound {
		return fmt.Errorf("the backing claim is not kept: %d backing claims, %d real volumes", len(backings), len(reals))
	}
	return w.exist(v)
}
