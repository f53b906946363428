package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// changeFlows change what is about a claim that has its volume.
func changeFlows() []Flow {
	var flows []Flow
	for _, p := range places {
		stays := func(w *World, c *Case, v *View) error {
			return all(w.bound(v, data, p.cluster), same(c, v), once(c, 1, 1))
		}
		flows = append(flows,
			served(Flow{
				Name: "expand-" + p.name,
				Act: func(ctx context.Context, w *World, c *Case) error {
					return w.patch(ctx, w.Bed.Home, c.before.Claim(data), map[string]any{
						"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": larger}}}})
				},
				Want: func(w *World, c *Case, v *View) error { return all(stays(w, c, v), expanded(c, v)) },
			}, p),
			served(Flow{
				Name: "carry-" + p.name,
				Act: func(ctx context.Context, w *World, c *Case) error {
					return w.patch(ctx, w.Bed.Home, c.before.Claim(data), map[string]any{
						"metadata": map[string]any{"labels": map[string]any{"team": "b"}, "annotations": map[string]any{"note": "new"}}})
				},
				Want: func(w *World, c *Case, v *View) error { return all(stays(w, c, v), carried(v)) },
			}, p))
	}
	// Somebody deletes a twin. Shadows are healed by the agent of their cluster.
	return append(flows, served(Flow{
		Name: "heal-local",
		Act: func(ctx context.Context, w *World, c *Case) error {
			return w.delete(ctx, w.Bed.Home, fabric.Storage, c.before.Backings[0].Name)
		},
		Want: func(w *World, c *Case, v *View) error {
			return all(w.bound(v, data, keys.Home), same(c, v), once(c, 2, 1), healed(c, v))
		},
	}, places[0]))
}

var errIncomplete = errors.New("something of the claim is missing")

// larger is the size that a claim is expanded to.
const larger = "2Gi"

// expanded says what is not as large as it must be.
func expanded(c *Case, v *View) error {
	claim := v.Claim(data)
	backings, volumes, reals := v.of(c.uid(data))
	if claim == nil || len(backings) != 1 || len(volumes) != 1 || len(reals) != 1 {
		return errIncomplete
	}
	for what, size := range map[string]string{
		"the claim":          claim.Status.Capacity.Storage().String(),
		"the volume":         volumes[0].Spec.Capacity.Storage().String(),
		"the backing claim":  backings[0].Status.Capacity.Storage().String(),
		"the real volume":    reals[0].Spec.Capacity.Storage().String(),
		"the backing's wish": backings[0].Spec.Resources.Requests.Storage().String(),
	} {
		if size != larger {
			return fmt.Errorf("%s has %s", what, size)
		}
	}
	if len(claim.Status.Conditions) > 0 {
		return fmt.Errorf("the claim has conditions left: %v", claim.Status.Conditions)
	}
	return nil
}

// carried says whether the backing claim has what the user wrote on the claim.
func carried(v *View) error {
	for _, b := range v.Backings {
		if b.Labels["team"] != "b" || b.Annotations["note"] != "new" {
			return errors.New("labels and annotations are not carried")
		}
	}
	return nil
}

// healed says whether a new twin holds the real volume as the old one did.
func healed(c *Case, v *View) error {
	if len(v.Backings) != 1 || len(v.Volumes) != 1 || len(v.Reals) != 1 {
		return errIncomplete
	}
	switch {
	case v.Backings[0].UID == c.before.Backings[0].UID:
		return errors.New("the twin is the old one")
	case v.Reals[0].Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return fmt.Errorf("the real volume has policy %s", v.Reals[0].Spec.PersistentVolumeReclaimPolicy)
	case v.Volumes[0].Annotations[keys.Healing] != "":
		return errors.New("the healing has not ended")
	}
	return nil
}

// The attributes classes, of these names in both clusters.
const slow, fast = "slow", "fast"

// attributesFlows change the attributes class of a claim that has its volume.
func attributesFlows() []Flow {
	var flows []Flow
	for _, p := range places {
		f := served(Flow{
			Name: "attributes-" + p.name,
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.patch(ctx, w.Bed.Home, c.before.Claim(data), map[string]any{"spec": map[string]any{"volumeAttributesClassName": fast}})
			},
			Play: playModifier,
			Want: func(w *World, c *Case, v *View) error {
				return all(w.bound(v, data, p.cluster), same(c, v), once(c, 1, 1), attributed(c, v))
			},
		}, p)
		f.Setup = func(ctx context.Context, w *World, c *Case) error {
			return w.create(ctx, c, data, now, p.node, func(claim *corev1.PersistentVolumeClaim) {
				claim.Spec.VolumeAttributesClassName = ptr.To(slow)
			})
		}
		flows = append(flows, f)
	}
	return flows
}

func (w *World) makeAttributes(ctx context.Context) error {
	for cluster, storage := range map[*testbed.Cluster]*fakeprovisioner.Provisioner{w.Bed.Home: w.Bed.HomeStorage,
		w.Bed.West: w.Bed.WestStorage} {
		for _, name := range []string{slow, fast} {
			class := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: storage.Name(),
				Parameters: map[string]string{"speed": name}}
			if _, err := cluster.Client().StorageV1().VolumeAttributesClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("make attributes class %s in %s: %w", name, cluster.Name(), err)
			}
		}
	}
	return nil
}

// playModifier changes the attributes of volumes of real drivers, as the resizer of a
// CSI driver does: those of virtual volumes at home, too, for they name that driver.
func playModifier(ctx context.Context, w *World, _ *Case, v *View) error {
	var errs []error
	for _, claim := range v.Claims {
		errs = append(errs, w.modify(ctx, w.Bed.Home, w.Bed.HomeStorage.Name(), claim))
	}
	for _, b := range v.Backings {
		if v.clusterOf(b) == "west" {
			errs = append(errs, w.modify(ctx, w.Bed.West, w.Bed.WestStorage.Name(), b))
		} else {
			errs = append(errs, w.modify(ctx, w.Bed.Home, w.Bed.HomeStorage.Name(), b))
		}
	}
	return errors.Join(errs...)
}

func (w *World) modify(ctx context.Context, cluster *testbed.Cluster, driver string, claim *corev1.PersistentVolumeClaim) error {
	want := ptr.Deref(claim.Spec.VolumeAttributesClassName, "")
	if want == "" || claim.Status.Phase != corev1.ClaimBound || ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, "") == want {
		return nil
	}
	volumes, claims := cluster.Client().CoreV1().PersistentVolumes(), cluster.Client().CoreV1().PersistentVolumeClaims(claim.Namespace)
	volume, err := volumes.Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get volume %s: %w", claim.Spec.VolumeName, err)
	}
	if volume.Spec.CSI.Driver != driver {
		return nil
	}
	if _, err := volumes.Patch(ctx, volume.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"volumeAttributesClassName":%q}}`, want),
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change volume %s: %w", volume.Name, err)
	}
	change := fmt.Appendf(nil, `{"status":{"currentVolumeAttributesClassName":%q}}`, want)
	if _, err := claims.Patch(ctx, claim.Name, types.MergePatchType, change, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// attributed says what does not have the new attributes class.
func attributed(c *Case, v *View) error {
	claim := v.Claim(data)
	backings, volumes, reals := v.of(c.uid(data))
	if claim == nil || len(backings) != 1 || len(volumes) != 1 || len(reals) != 1 {
		return errIncomplete
	}
	for what, class := range map[string]*string{
		"the claim":          claim.Status.CurrentVolumeAttributesClassName,
		"the volume":         volumes[0].Spec.VolumeAttributesClassName,
		"the backing claim":  backings[0].Status.CurrentVolumeAttributesClassName,
		"the backing's wish": backings[0].Spec.VolumeAttributesClassName,
		"the real volume":    reals[0].Spec.VolumeAttributesClassName,
	} {
		if got := ptr.Deref(class, ""); got != fast {
			return fmt.Errorf("%s has attributes class %q", what, got)
		}
	}
	return nil
}

// hurtFlows are about data in west that is given up, or whose shadow somebody deletes.
func hurtFlows() []Flow {
	west := places[1]
	return []Flow{
		// Declared lost, and its claim deleted, although west answers: nothing there may
		// be touched.
		served(Flow{
			Name: "lost-remote",
			Act: func(ctx context.Context, w *World, c *Case) error {
				_, volumes, _ := c.before.of(c.uid(data))
				err := patchVolume(ctx, w.Bed.Home.Client().CoreV1().PersistentVolumes(), volumes[0], map[string]any{
					"metadata": map[string]any{"annotations": map[string]any{keys.Lost: "given up"}}})
				return errors.Join(err, w.delete(ctx, w.Bed.Home, c.Namespace, data))
			},
			Want: func(w *World, c *Case, v *View) error { return all(w.left(v), same(c, v), once(c, 1, 1)) },
		}, west),
		// The remote agent, which is played, makes the shadow anew.
		served(Flow{
			Name: "heal-remote",
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.delete(ctx, w.Bed.West, c.Namespace, c.before.Backings[0].Name)
			},
			Play: playHealing,
			Want: func(w *World, c *Case, v *View) error {
				return all(w.bound(v, data, west.cluster), same(c, v), once(c, 2, 1), healed(c, v), cured(v))
			},
		}, west),
	}
}

// left says what is wrong with data that home gave up: all of it is there, and
// nothing at home stands for it.
func (w *World) left(v *View) error {
	if len(v.Claims)+len(v.Volumes) > 0 {
		return fmt.Errorf("left over at home: %d claims, %d volumes", len(v.Claims), len(v.Volumes))
	}
	if len(v.Backings) != 1 || v.Backings[0].DeletionTimestamp != nil || !backing.Protected(v.Backings[0]) ||
		v.Backings[0].Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("the backing claim is not as it was: %+v", v.Backings)
	}
	return w.exist(v)
}

// cured says whether the played agent is done.
func cured(v *View) error {
	for _, real := range v.Reals {
		if real.Labels[keys.Healing] != "" {
			return errors.New("the agent has not ended the healing")
		}
	}
	return nil
}

type volumePatcher interface {
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions,
		subresources ...string) (*corev1.PersistentVolume, error)
}

// patchVolume merges a change into a volume that is as it was seen.
func patchVolume(ctx context.Context, volumes volumePatcher, volume *corev1.PersistentVolume, change map[string]any) error {
	metadata, ok := change["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		change["metadata"] = metadata
	}
	metadata["resourceVersion"] = volume.ResourceVersion
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := volumes.Patch(ctx, volume.Name, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch volume %s: %w", volume.Name, err)
	}
	return nil
}

// playHealing plays the remote agent: it takes the next step towards a new shadow.
func playHealing(ctx context.Context, w *World, c *Case, v *View) error {
	if len(v.Reals) != 1 {
		return errIncomplete
	}
	real, marked := v.Reals[0], v.Reals[0].Labels[keys.Healing] != ""
	var shadow *corev1.PersistentVolumeClaim
	if len(v.Backings) > 0 {
		shadow = v.Backings[0]
	}
	volumes, claims := w.Bed.West.Client().CoreV1().PersistentVolumes(), w.Bed.West.Client().CoreV1().PersistentVolumeClaims(c.Namespace)
	old := c.before.Backings[0]
	switch {
	case shadow != nil && shadow.DeletionTimestamp != nil && !marked:
		return patchVolume(ctx, volumes, real, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{keys.Healing: old.Labels[keys.HomeID]}},
			"spec":     map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain}})
	case shadow != nil && shadow.DeletionTimestamp != nil && backing.Protected(shadow):
		_, err := claims.Patch(ctx, shadow.Name, types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, shadow.UID, keys.BackingFinalizer),
			metav1.PatchOptions{})
		return err
	case shadow == nil && real.Status.Phase == corev1.VolumeReleased && real.Spec.ClaimRef.UID != "":
		return patchVolume(ctx, volumes, real,
			map[string]any{"spec": map[string]any{"claimRef": map[string]any{"uid": nil, "resourceVersion": nil}}})
	case shadow == nil && marked && real.Spec.ClaimRef.UID == "":
		notes := maps.Clone(old.Annotations)
		// Kubernetes writes its own, and would take the claim for one that has lost its volume.
		maps.DeleteFunc(notes, func(key, _ string) bool { return strings.Contains(key, "kubernetes.io/") })
		anew := old.DeepCopy()
		anew.ObjectMeta = metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name, Labels: old.Labels, Annotations: notes,
			Finalizers: []string{keys.BackingFinalizer}}
		anew.Status = corev1.PersistentVolumeClaimStatus{}
		_, err := claims.Create(ctx, anew, metav1.CreateOptions{})
		return err
	case shadow != nil && shadow.UID != old.UID && marked && real.Status.Phase == corev1.VolumeBound &&
		shadow.Status.Phase == corev1.ClaimBound:
		return patchVolume(ctx, volumes, real, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{keys.Healing: nil}},
			"spec":     map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimDelete}})
	}
	return nil
}

// clusterFlows are about a RemoteCluster, which cases share: they run alone. The
// RemoteCluster is made again after each case.
func clusterFlows() []Flow {
	first := Flow{
		// The first claim of a namespace, which is written down with the cluster.
		Name: "first-in-cluster", Alone: true,
		Act: func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, now, "west") },
		// The provisioner may not have seen yet that the namespace is offloaded, and then has a scheduler choose again.
		Play: func(ctx context.Context, w *World, _ *Case, v *View) error { return w.schedule(ctx, v, "west") },
		Want: func(w *World, c *Case, v *View) error {
			return all(w.bound(v, data, "west"), once(c, 1, 1), w.recorded(c))
		},
	}
	// Removed while a claim waits there: it goes home.
	waiting := Flow{
		Name: "cluster-removed-waiting", Alone: true,
		Setup: func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, moved, "west") },
		Ready: func(_ *World, _ *Case, v *View) error { return hasBacking(v) },
		Act:   func(ctx context.Context, w *World, _ *Case) error { return w.removeCluster(ctx) },
		Play:  chooseHome,
		Want: func(w *World, c *Case, v *View) error {
			return all(w.bound(v, data, keys.Home), once(c, 2, 1), w.removed())
		},
	}
	// Removed while it holds a volume: it stays until the user deletes that.
	inUse := served(Flow{
		Name: "cluster-removed-in-use", Alone: true,
		Act: func(ctx context.Context, w *World, c *Case) error {
			return errors.Join(w.removeCluster(ctx), w.delete(ctx, w.Bed.Home, c.Namespace, data))
		},
		Want: func(w *World, c *Case, v *View) error { return all(w.gone(c, v), once(c, 1, 1), w.removed()) },
	}, places[1])
	return []Flow{first, waiting, inUse}
}

func (w *World) removeCluster(ctx context.Context) error {
	if err := w.Bed.Remotes.Delete(ctx, "west", metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete RemoteCluster west: %w", err)
	}
	return nil
}

// removed says whether the RemoteCluster is gone and its Secret is let go.
func (w *World) removed() error {
	if _, err := w.Bed.Remotes.Get(context.Background(), "west", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return errors.New("RemoteCluster west is still there")
	}
	secret, err := w.Bed.Home.Client().CoreV1().Secrets(fabric.System).Get(context.Background(), "west", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at the Secret of west: %w", err)
	}
	if slices.Contains(secret.Finalizers, keys.ClusterFinalizer) {
		return errors.New("the Secret of west is still held")
	}
	return nil
}

// recorded says whether the RemoteCluster names a case's namespace.
func (w *World) recorded(c *Case) error {
	remote, err := w.Bed.Remotes.Get(context.Background(), "west", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at RemoteCluster west: %w", err)
	}
	if !slices.Contains(remote.Status.Namespaces, c.Namespace) {
		return errors.New("the RemoteCluster does not name the namespace")
	}
	return nil
}

// restoreCluster makes the RemoteCluster again if it is gone.
func (w *World) restoreCluster(ctx context.Context) error {
	_, err := w.Bed.Remotes.Get(ctx, "west", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := w.Bed.Home.Client().CoreV1().Secrets(fabric.System).Delete(ctx, "west", metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the Secret of west: %w", err)
	}
	return w.Bed.Register(ctx, "west", w.kubeconfigs[1]["west"])
}

// agentFlows are about what the remote agent does by itself, for a world of it: somebody
// deletes a shadow in west, alone or with its namespace. The provisioner goes on beside.
func agentFlows() []Flow {
	west := places[1]
	mended := func(w *World, c *Case, v *View) error {
		return all(w.bound(v, data, west.cluster), same(c, v), once(c, 2, 1), healed(c, v), cured(v))
	}
	// The agent may take so long for many namespaces at once that west refuses a claim first.
	again := func(ctx context.Context, w *World, _ *Case, v *View) error { return w.schedule(ctx, v, west.node) }
	return []Flow{
		served(Flow{
			Name: "agent-heal", Of: Agent, Few: true, Reads: 4, Want: mended, Play: again, Early: true,
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.delete(ctx, w.Bed.West, c.before.Backings[0].Namespace, c.before.Backings[0].Name)
			},
		}, west),
		served(Flow{
			// Kubernetes looks for each kind of object several times before a namespace is gone, and
			// the agent looks every two seconds whether it is.
			Name: "agent-heal-namespace", Of: Agent, Few: true, Reads: 4, Play: again, Early: true,
			Act: func(ctx context.Context, w *World, c *Case) error {
				name := c.before.Backings[0].Namespace
				if err := w.Bed.West.Client().CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
					return fmt.Errorf("delete namespace %s in west: %w", name, err)
				}
				return nil
			},
			Want: func(w *World, c *Case, v *View) error {
				if err := mended(w, c, v); err != nil {
					return err
				}
				return w.given(v.Backings[0].Namespace, v.Backings[0].Labels[keys.HomeID])
			},
		}, west),
	}
}

// given says what is missing until home may use a namespace of west: the agent says that
// it may, and its rights there are none that go.
func (w *World) given(namespace, homeID string) error {
	request, err := w.Bed.Agents.NamespaceRequests(keys.TenantPrefix+homeID).Get(context.Background(), namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at NamespaceRequest %s: %w", namespace, err)
	}
	if !meta.IsStatusConditionTrue(request.Status.Conditions, remotev1alpha1.Ready) {
		return fmt.Errorf("namespace %s is not given: %+v", namespace, request.Status.Conditions)
	}
	bindings, err := w.Bed.West.Client().RbacV1().RoleBindings(namespace).List(context.Background(),
		metav1.ListOptions{LabelSelector: keys.HomeID + "=" + homeID})
	if err != nil {
		return fmt.Errorf("look at the role bindings of namespace %s: %w", namespace, err)
	}
	if len(bindings.Items) != 1 || bindings.Items[0].DeletionTimestamp != nil {
		return errors.New("home has no rights in the namespace, or they go")
	}
	return nil
}
