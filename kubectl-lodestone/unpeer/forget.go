package unpeer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/release"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Finalizers of a virtual volume: until its data is deleted, and until no claim uses it.
const (
	provisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	protectionFinalizer  = "kubernetes.io/pv-protection"
)

// forget removes home's own objects of the peering. The credentials are removed first, so that no
// program of home passes a deletion on to the remote cluster.
func (u *unpeering) forget(ctx context.Context, remote *v1alpha1.RemoteCluster, secret *corev1.Secret, held cli.Holdings) error {
	if err := u.checkNotShared(ctx, remote, secret != nil); err != nil {
		return err
	}
	for _, line := range held.All() {
		u.Say("  %s", line)
	}
	if err := checkNamed(u.name, held.Volumes, u.Volumes); err != nil {
		return err
	}
	if remote != nil && u.userSecret {
		ref := remote.Spec.KubeconfigSecretRef
		u.Say("Secret %s/%s was not made by peer and is kept, with its kubeconfig under key %s, which no program reads", ref.Namespace, ref.Name,
			forgottenKey(ref))
	}
	u.Say("%q will be forgotten with %s.\nEverything in the remote cluster stays as it is: its data is kept there, and its pods run on "+
		"there.\nAt home the volumes above are removed, so their claims become Lost, and the pods above are deleted although their copies run "+
		"on;\ntheir controllers may start others. This cannot be undone.", u.name, held)
	if err := cli.Ask(ctx, u.streams.In, u.streams.ErrOut, u.Yes, u.name); err != nil {
		return err
	}
	if err := u.disconnect(ctx, remote); err != nil {
		return err
	}
	if err := u.checkNoNewVolumes(ctx, held); err != nil {
		return err
	}
	for _, volume := range held.Volumes {
		// From here on no controller deletes its data, whatever happens to its claim.
		if err := u.patchVolume(ctx, &volume,
			map[string]any{"spec": map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain}}); err != nil {
			return err
		}
	}
	if remote != nil {
		if err := u.dropRemoteCluster(ctx, remote); err != nil {
			return err
		}
	}
	for _, pod := range held.Pods {
		if !slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) {
			u.Say("pod %s/%s is left to whoever provides its node", pod.Namespace, pod.Name)
			continue
		}
		if err := release.Pod(ctx, u.home, &pod); err != nil {
			return err
		}
	}
	if err := u.dropNode(ctx); err != nil {
		return err
	}
	for _, volume := range held.Volumes {
		if err := u.dropVolume(ctx, &volume); err != nil {
			return err
		}
	}
	if secret != nil {
		if err := u.dropSecret(ctx, secret); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(u.streams.Out, "remotecluster.lodestone.dev/%s forgotten\n", u.name)
	return err
}

// checkNoNewVolumes returns an error if the cluster got volumes after they were shown to the user.
// Once its programs have disconnected from the cluster, home makes no more.
func (u *unpeering) checkNoNewVolumes(ctx context.Context, shown cli.Holdings) error {
	now, err := cli.ReadHoldings(ctx, u.home, u.name)
	if err != nil {
		return err
	}
	later := slices.DeleteFunc(now.Volumes, func(volume corev1.PersistentVolume) bool {
		return slices.ContainsFunc(shown.Volumes, func(had corev1.PersistentVolume) bool { return had.UID == volume.UID })
	})
	if len(later) == 0 {
		return nil
	}
	return cli.Refuse("%q has got %s since the volumes were shown, so only the credentials were removed: run the same command again, "+
		"which lists them all", u.name, cli.Number(len(later), "more volume"))
}

// patchVolume changes just this volume; if it is deleted, nothing is to be changed.
func (u *unpeering) patchVolume(ctx context.Context, volume *corev1.PersistentVolume, change map[string]any) error {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"] = volume.UID
	change["metadata"] = metadata
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("write the change of volume %s: %w", volume.Name, err)
	}
	_, err = u.home.Client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !isGone(err) {
		return u.home.Explain("change volume "+volume.Name, err)
	}
	return nil
}

func (u *unpeering) dropVolume(ctx context.Context, volume *corev1.PersistentVolume) error {
	if err := u.home.Client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, deleteOptions(volume.UID)); err != nil && !isGone(err) {
		return u.home.Explain("delete volume "+volume.Name, err)
	}
	kept := slices.DeleteFunc(slices.Clone(volume.Finalizers), func(f string) bool {
		return f == provisionerFinalizer || f == protectionFinalizer
	})
	if err := u.patchVolume(ctx, volume, map[string]any{"metadata": map[string]any{"finalizers": kept}}); err != nil {
		return err
	}
	u.Say("removed volume %s", volume.Name)
	return nil
}

// dropRemoteCluster deletes the RemoteCluster and removes Lodestone's finalizers from it.
func (u *unpeering) dropRemoteCluster(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if err := u.home.Remotes.Delete(ctx, remote.Name, deleteOptions(remote.UID)); err != nil && !isGone(err) {
		return u.home.Explain("delete RemoteCluster "+remote.Name, err)
	}
	err := u.Await(ctx, fmt.Sprintf("RemoteCluster %q to be gone", remote.Name), func(ctx context.Context) (string, bool, error) {
		now, err := u.home.Remotes.Get(ctx, remote.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != remote.UID:
			return "", true, nil
		case err != nil:
			return "", false, u.home.Explain("get RemoteCluster "+remote.Name, err)
		}
		ours := func(f string) bool { return strings.HasPrefix(f, "lodestone.dev/") }
		if !slices.ContainsFunc(now.Finalizers, ours) {
			return deletionMessage(now), false, nil
		}
		now.Finalizers = slices.DeleteFunc(now.Finalizers, ours)
		// After a change by somebody else the object is read again.
		if _, err = u.home.Remotes.Update(ctx, now, metav1.UpdateOptions{}); err != nil && !isGone(err) {
			return "", false, u.home.Explain("take the finalizers off RemoteCluster "+remote.Name, err)
		}
		return deletionMessage(now), false, nil
	})
	if err == nil {
		u.Say("removed RemoteCluster %q", remote.Name)
	}
	return err
}

// dropNode deletes Lodestone's own virtual node for the cluster.
func (u *unpeering) dropNode(ctx context.Context) error {
	node, err := u.home.Client.CoreV1().Nodes().Get(ctx, u.name, metav1.GetOptions{})
	if err != nil {
		if isGone(err) {
			return nil
		}
		return u.home.Explain("get node "+u.name, err)
	}
	ours := node.Spec.ProviderID == "lodestone://"+u.name
	if node.Labels[keys.Cluster] != u.name || !ours {
		return nil
	}
	if err := u.home.Client.CoreV1().Nodes().Delete(ctx, node.Name, deleteOptions(node.UID)); err != nil && !isGone(err) {
		return u.home.Explain("delete node "+node.Name, err)
	}
	u.Say("removed virtual node %q", node.Name)
	return nil
}

// dropSecret deletes the Secret and removes Lodestone's finalizer from it.
func (u *unpeering) dropSecret(ctx context.Context, secret *corev1.Secret) error {
	if err := u.removeSecret(ctx, secret); err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(secret.Finalizers), func(f string) bool { return f == keys.ClusterFinalizer })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": secret.UID, "finalizers": kept}})
	if err != nil {
		return fmt.Errorf("write the change of Secret %s: %w", secret.Name, err)
	}
	_, err = u.home.Client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !isGone(err) {
		return u.home.Explain("take the finalizer off Secret "+secret.Name, err)
	}
	return nil
}

// checkNamed returns why the volumes of a cluster must not be given up, nil if each was declared
// lost or is named on the command line: nobody is to give up many at once without having seen
// which. It is pure.
func checkNamed(cluster string, volumes []corev1.PersistentVolume, named []string) error {
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
	case len(unknown) > 0 && len(volumes) == 0:
		return cli.Refuse("--volume names %s, but %q has no volumes of home, so nothing was changed: leave --volume out", strings.Join(unknown,
			", "), cluster)
	case len(unknown) > 0:
		return cli.Refuse("--volume names %s, whose data is not in %q, so nothing was changed: name one of those above",
			strings.Join(unknown, ", "), cluster)
	case len(left) > 0:
		return cli.Refuse("%q has %s neither declared lost nor named, so nothing was changed: %s; if the cluster is gone for ever, declare "+
			"each lost (kubectl lodestone lose pv/NAME); if the data is to stay there without home, name each (--volume %s)",
			cluster, cli.Number(len(left), "volume"), strings.Join(left, ", "), left[0])
	}
	return nil
}
