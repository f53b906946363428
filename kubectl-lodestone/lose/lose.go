package lose

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/confirm"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/holdings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// lose declares one volume lost, or takes that back. Its one write fails if the
// volume has changed since it was shown.
func (o *Options) lose(ctx context.Context, home *access.Cluster, streams genericiooptions.IOStreams, name string) error {
	volume, err := home.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no volume %q: kubectl get pv -L %s lists them", name, keys.Cluster)
	case err != nil:
		return home.Explain("get volume "+name, err)
	}
	if err := volumeOf(volume); err != nil {
		return err
	}
	said := volume.Annotations[keys.Lost]
	switch {
	case o.Undo && said == "":
		_, err = fmt.Fprintf(streams.Out, "persistentvolume/%s is not declared lost\n", name)
		return err
	case o.Undo:
		if err := declare(ctx, home, volume, nil); err != nil {
			return err
		}
		_, err = fmt.Fprintf(streams.Out, "persistentvolume/%s is no longer declared lost\n", name)
		return err
	case said != "":
		_, err = fmt.Fprintf(streams.Out, "persistentvolume/%s was declared lost at %s\n", name, said)
		return err
	}
	seen, err := o.mayBeLost(ctx, home, holdings.ClusterOf(volume))
	if err != nil {
		return err
	}
	pods, err := podsOf(ctx, home, volume)
	if err != nil {
		return err
	}
	for _, line := range describe(volume, seen, pods) {
		fmt.Fprintln(streams.ErrOut, line)
	}
	fmt.Fprintf(streams.ErrOut, "The data of this volume is to be declared lost: its claim can then be deleted without cluster %q.\nGo on only if that cluster is gone for ever.\n", holdings.ClusterOf(volume))
	if err := confirm.Typed(streams.In, streams.ErrOut, o.Yes, name); err != nil {
		return err
	}
	if err := declare(ctx, home, volume, time.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	for _, line := range next(volume, pods) {
		fmt.Fprintln(streams.ErrOut, line)
	}
	_, err = fmt.Fprintf(streams.Out, "persistentvolume/%s declared lost\n", name)
	return err
}

// mayBeLost returns when a cluster was last seen, or why it is not gone.
func (o *Options) mayBeLost(ctx context.Context, home *access.Cluster, cluster string) (string, error) {
	remote, err := home.Remotes.Get(ctx, cluster, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		remote = nil
	case err != nil:
		return "", home.Explain("get RemoteCluster "+cluster, err)
	}
	seen, err := Judge(cluster, remote, o.Away, time.Now())
	if err != nil || remote == nil {
		return seen, err
	}
	return seen, silent(ctx, home, remote)
}

// declare writes the record on the volume; nil takes it off. Only who may write
// volumes can do so.
func declare(ctx context.Context, home *access.Cluster, volume *corev1.PersistentVolume, when any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": volume.UID, "resourceVersion": volume.ResourceVersion, "annotations": map[string]any{keys.Lost: when}}})
	if err != nil {
		return fmt.Errorf("write the change of volume %s: %w", volume.Name, err)
	}
	_, err = home.Client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-lodestone"})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("volume %s has changed since it was looked at: run the same command again (%w)", volume.Name, err)
	}
	return home.Explain("change volume "+volume.Name, err)
}

// next says what the user does now.
func next(volume *corev1.PersistentVolume, pods []corev1.Pod) []string {
	var lines []string
	for _, pod := range pods {
		if slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) {
			lines = append(lines, fmt.Sprintf("next: kubectl lodestone release pod %s -n %s", pod.Name, pod.Namespace))
		} else {
			lines = append(lines, fmt.Sprintf("next: kubectl delete pod %s -n %s", pod.Name, pod.Namespace))
		}
	}
	switch ref := volume.Spec.ClaimRef; {
	case ref != nil && volume.Status.Phase == corev1.VolumeBound:
		lines = append(lines, fmt.Sprintf("next: kubectl delete pvc %s -n %s", ref.Name, ref.Namespace))
	case volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		lines = append(lines, fmt.Sprintf("next: kubectl delete pv %s", volume.Name))
	}
	if ref := volume.Spec.ClaimRef; ref != nil && volume.Status.Phase == corev1.VolumeBound && volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		lines = append(lines, fmt.Sprintf("then: kubectl delete pv %s", volume.Name))
	}
	return lines
}
