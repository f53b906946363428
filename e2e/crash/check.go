package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// bound says what is wrong with a claim that must have its volume in a cluster, nil
// if nothing: the claim and its volume are bound, there is exactly one backing
// claim, which is bound too and protected, and exactly one real volume.
func (w *World) bound(v *View, name, cluster string) error {
	claim := v.Claim(name)
	if claim == nil {
		return fmt.Errorf("claim %s is gone", name)
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("claim %s is %s, with annotations %v", name, claim.Status.Phase, claim.Annotations)
	}
	backings, volumes, reals := v.of(claim.UID)
	if len(volumes) != 1 || volumes[0].Status.Phase != corev1.VolumeBound || volumes[0].Name != claim.Spec.VolumeName ||
		volumes[0].DeletionTimestamp != nil {
		return fmt.Errorf("claim %s has not just one volume that is bound: %s", name, brief(volumes))
	}
	if len(backings) != 1 || len(reals) != 1 {
		return fmt.Errorf("claim %s has %d backing claims and %d real volumes", name, len(backings), len(reals))
	}
	b, real := backings[0], reals[0]
	switch {
	case v.clusterOf(b) != cluster || volumes[0].Labels[keys.Cluster] != cluster:
		return fmt.Errorf("the data of claim %s is in %s, not in %s", name, v.clusterOf(b), cluster)
	case b.Status.Phase != corev1.ClaimBound || b.Spec.VolumeName != real.Name:
		return fmt.Errorf("backing claim %s is %s", b.Name, b.Status.Phase)
	case b.DeletionTimestamp != nil || !backing.Protected(b) || b.Annotations[keys.Unpublished] != "":
		return fmt.Errorf("backing claim %s is deleted, not protected or not marked as published", b.Name)
	case real.DeletionTimestamp != nil || real.Status.Phase != corev1.VolumeBound:
		return fmt.Errorf("real volume %s is %s", real.Name, real.Status.Phase)
	case volumes[0].Annotations[keys.BackingVolume] != "" && volumes[0].Annotations[keys.BackingVolume] != real.Name:
		return fmt.Errorf("volume %s names another real volume than %s", volumes[0].Name, real.Name)
	}
	if ref, err := backing.RefOf(volumes[0]); err != nil || ref.UID != b.UID {
		return fmt.Errorf("volume %s names another backing claim than %s", volumes[0].Name, b.UID)
	}
	return w.exist(v)
}

// exist says which real volume lacks its data.
func (w *World) exist(v *View) error {
	for _, real := range v.Reals {
		if w.missing(real) {
			return fmt.Errorf("the data of real volume %s is gone", real.Name)
		}
	}
	return nil
}

// missing says whether no storage has the data of a real volume.
func (w *World) missing(real *corev1.PersistentVolume) bool {
	handle := real.Spec.CSI.VolumeHandle
	away := slices.ContainsFunc(w.remotes, func(r *remote) bool { return r.bed.WestStorage.Exists(handle) })
	return !away && !w.Bed.HomeStorage.Exists(handle)
}

// gone says what is left of a case that must have nothing any more.
func (w *World) gone(c *Case, v *View) error {
	if len(v.Claims)+len(v.Backings)+len(v.Volumes)+len(v.Reals) > 0 {
		return fmt.Errorf("left over: %d claims, %d backing claims, %d volumes, %d real volumes", len(v.Claims), len(v.Backings), len(v.Volumes),
			len(v.Reals))
	}
	if handles := w.data(c); len(handles) > 0 {
		return fmt.Errorf("data is left in the storage: %v", handles)
	}
	return nil
}

// data returns the handles of the volumes that the storages hold for a case.
func (w *World) data(c *Case) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var handles []string
	for _, remote := range w.remotes {
		for _, volume := range remote.bed.WestStorage.Volumes() {
			if home(volume.Namespace) == c.Namespace {
				handles = append(handles, volume.Handle)
			}
		}
	}
	for _, volume := range w.Bed.HomeStorage.Volumes() {
		for _, uid := range c.claims {
			if strings.HasPrefix(volume.Claim, "pvc-"+string(uid)) {
				handles = append(handles, volume.Handle)
			}
		}
		for _, uid := range c.moving.uids {
			// What was made of a snapshot of it.
			if strings.Contains(volume.Claim, string(uid)) {
				handles = append(handles, volume.Handle)
			}
		}
	}
	return handles
}

// once says whether more than the given numbers of backing claims and real volumes
// were ever made.
func once(c *Case, backings, reals int) error {
	if b, r := c.countEver(); b > backings || r > reals {
		return fmt.Errorf("%d backing claims and %d real volumes were made in all, not %d and %d", b, r, backings, reals)
	}
	return nil
}

// same says whether the real volumes are those that were there before the act.
func same(c *Case, v *View) error {
	ids := func(volumes []*corev1.PersistentVolume) []types.UID {
		var all []types.UID
		for _, volume := range volumes {
			all = append(all, volume.UID)
		}
		slices.Sort(all)
		return all
	}
	if was, is := ids(c.before.Reals), ids(v.Reals); !slices.Equal(was, is) {
		return fmt.Errorf("real volumes were %v and are %v", was, is)
	}
	return nil
}

func brief(volumes []*corev1.PersistentVolume) string {
	text := fmt.Sprintf("%d", len(volumes))
	for _, v := range volumes {
		text += fmt.Sprintf(" %s %s", v.Name, v.Status.Phase)
	}
	return text
}

// all returns the first error.
func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// nothingLeft says what there still is for the sake of a move.
func (w *World) nothingLeft(ctx context.Context, c *Case) error {
	var uids []string
	for _, uid := range c.moving.uids {
		uids = append(uids, string(uid))
	}
	ofIt := metav1.ListOptions{LabelSelector: keys.MoveOf + " in (" + strings.Join(uids, ",") + ")"}
	core := w.Bed.Home.Client().CoreV1()
	records, err := core.Secrets(fabric.System).List(ctx, ofIt)
	if err != nil || len(records.Items) > 0 {
		return errors.Join(errors.New("the records are not gone"), err)
	}
	if err := leftIn(ctx, core, keys.Home, fabric.Storage, ofIt); err != nil {
		return err
	}
	for _, remote := range w.remotes {
		if err := leftIn(ctx, remote.bed.West.Client().CoreV1(), remote.name, metav1.NamespaceAll, ofIt); err != nil {
			return err
		}
		shadows, err := remote.bed.Agents.ShadowPods(metav1.NamespaceAll).List(ctx, ofIt)
		if err != nil || len(shadows.Items) > 0 {
			return errors.Join(fmt.Errorf("ShadowPods of movers in %s are not gone", remote.name), err)
		}
	}
	return w.runsOnce(ctx, c)
}

// leftIn says what there still is of moves in a cluster; its movers are in a namespace, or
// in all.
func leftIn(ctx context.Context, core corev1client.CoreV1Interface, cluster, movers string, ofIt metav1.ListOptions) error {
	secrets, err := core.Secrets(movers).List(ctx, ofIt)
	if err != nil || len(secrets.Items) > 0 {
		return errors.Join(fmt.Errorf("the movers' keys in %s are not gone", cluster), err)
	}
	pods, err := core.Pods(movers).List(ctx, ofIt)
	if err != nil || len(pods.Items) > 0 {
		return errors.Join(fmt.Errorf("movers in %s are not gone", cluster), err)
	}
	claims, err := core.PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, ofIt)
	if err != nil || len(claims.Items) > 0 {
		return errors.Join(fmt.Errorf("claims of the move in %s are not gone", cluster), err)
	}
	return nil
}

// runsOnce says whether not just one pod of the application runs, or one waits at the gate.
func (w *World) runsOnce(ctx context.Context, c *Case) error {
	apps, err := w.Bed.Home.Client().CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the pods of %s: %w", c.Namespace, err)
	}
	running := 0
	for i := range apps.Items {
		if slices.Contains(apps.Items[i].Spec.SchedulingGates, corev1.PodSchedulingGate{Name: keys.MovingGate}) {
			return fmt.Errorf("pod %s waits at the gate", apps.Items[i].Name)
		}
		if apps.Items[i].Status.Phase == corev1.PodRunning {
			running++
		}
	}
	if running != 1 {
		return fmt.Errorf("%d pods of the application run", running)
	}
	return nil
}
