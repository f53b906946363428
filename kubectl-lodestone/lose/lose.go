package lose

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Options are the flags of lose.
type Options struct {
	Yes, Undo bool
	Away      time.Duration
}

// takes are the kinds of what can be declared lost.
var takes = []cli.Kind{cli.Claim, cli.Volume}

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Away: time.Hour}
	command := &cobra.Command{
		Use:   "lose pvc/NAME | pv/NAME",
		Short: "Declare a volume lost whose remote cluster is gone for ever",
		Long: `Lose declares that the data of one volume is lost, because the remote cluster that
holds it is gone for ever. It deletes nothing. From then on the claim can be deleted
without that cluster, and a RemoteCluster without other volumes can be removed.

It shows what is lost and asks for the name of the volume. It is refused (exit code
3) while the cluster answers, was seen within --away, or was never looked at.

If the cluster comes back after all, nothing there is touched: the real claim stays
with its data, is counted in the metric lodestone_provisioner_backings_left, and
kubectl lodestone import gives it a claim again. While the claim at home is there,
--undo takes the declaration back.`,
		Example: `  # Cluster west burnt down: give up the volume of a claim, or a volume whose claim is gone
  kubectl lodestone lose pvc/data-web-0 -n shop
  kubectl lodestone lose pv/pvc-46f90104-d142-43f7-a4a1-c899fafff07f

  # It did not: take that back
  kubectl lodestone lose pvc/data-web-0 -n shop --undo`,
		Args:              cli.TakesOne(takes...),
		ValidArgsFunction: cli.CompleteReferences(flags, true, nil, takes...),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := cli.OneReference(cmd, args, takes...)
			if err != nil {
				return err
			}
			if o.Away < 0 {
				return cli.Misuse("--away cannot be negative: give a time such as 1h")
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			ctx, cancel := cli.Within(cmd.Context(), time.Minute)
			defer cancel()
			name := named.Name
			if named.Kind == cli.Claim {
				if name, err = volumeOfClaim(ctx, home, namespace, named.Name); err != nil {
					return err
				}
			}
			return o.lose(ctx, home, streams, name)
		},
	}
	command.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	command.Flags().BoolVar(&o.Undo, "undo", false, "take the declaration back")
	command.Flags().DurationVar(&o.Away, "away", o.Away, "how long the cluster must not have answered")
	return command
}

func volumeOfClaim(ctx context.Context, home *cli.Cluster, namespace, name string) (string, error) {
	claim, err := home.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%w; of a claim that is gone, name the volume: kubectl lodestone lose pv/NAME", home.Missing(ctx, cli.Claim,
			namespace, name))
	case err != nil:
		return "", home.Explain("get claim "+namespace+"/"+name, err)
	case claim.Spec.VolumeName == "":
		return "", cli.Refuse("claim %s/%s has no volume, so nothing of it is lost: delete the claim if it is to go", namespace, name)
	}
	return claim.Spec.VolumeName, nil
}

// podsOf returns the pods at home that use the claim of a volume.
func podsOf(ctx context.Context, home *cli.Cluster, volume *corev1.PersistentVolume) ([]corev1.Pod, error) {
	ref := volume.Spec.ClaimRef
	if ref == nil {
		return nil, nil
	}
	pods, err := home.Client.CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, home.Explain("list pods", err)
	}
	var users []corev1.Pod
	for _, pod := range pods.Items {
		if cli.UsesClaim(&pod, ref.Name) {
			users = append(users, pod)
		}
	}
	return users, nil
}

// lose declares one volume lost, or undoes that. Its only write fails if the volume has changed
// since it was shown to the user.
func (o *Options) lose(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, name string) error {
	volume, err := home.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return missing(ctx, home, name)
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
	seen, err := o.mayBeLost(ctx, home, cli.ClusterOf(volume))
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
	fmt.Fprintf(streams.ErrOut, "The data of this volume will be declared lost: its claim can then be deleted without cluster %q.\nGo on "+
		"only if that cluster is gone for ever.\n", cli.ClusterOf(volume))
	if err := cli.Ask(ctx, streams.In, streams.ErrOut, o.Yes, name); err != nil {
		return err
	}
	if err := declare(ctx, home, volume, time.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	for _, line := range next(volume, pods, isGoing(ctx, home, volume)) {
		fmt.Fprintln(streams.ErrOut, line)
	}
	_, err = fmt.Fprintf(streams.Out, "persistentvolume/%s declared lost\n", name)
	return err
}

// missing says that there is no such volume, and which there are that can be declared lost.
func missing(ctx context.Context, home *cli.Cluster, name string) error {
	there, err := home.RemoteVolumes(ctx, "")
	switch {
	case err != nil:
		return err
	case len(there) == 0:
		return fmt.Errorf("there is no volume %q, nor any other whose data is in a remote cluster", name)
	}
	return fmt.Errorf("there is no volume %q; of those whose data is in remote clusters there %s", name,
		cli.ThereAre(there, name, "kubectl get pv -L "+keys.Cluster))
}

// mayBeLost returns when a cluster was last seen, or why it is not gone.
func (o *Options) mayBeLost(ctx context.Context, home *cli.Cluster, cluster string) (string, error) {
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

// declare writes the record on the volume; nil removes it. It needs the right to update volumes.
func declare(ctx context.Context, home *cli.Cluster, volume *corev1.PersistentVolume, when any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": volume.UID, "resourceVersion": volume.ResourceVersion, "annotations": map[string]any{keys.Lost: when}}})
	if err != nil {
		return fmt.Errorf("write the change of volume %s: %w", volume.Name, err)
	}
	_, err = home.Client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl-lodestone"})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("volume %s has changed since it was looked at: run the same command again (%w)", volume.Name, err)
	}
	return home.Explain("change volume "+volume.Name, err)
}

// isGoing says whether the claim of a volume is being deleted already, as in a namespace that is; of one that cannot be read it does
// not.
func isGoing(ctx context.Context, home *cli.Cluster, volume *corev1.PersistentVolume) bool {
	ref := volume.Spec.ClaimRef
	if ref == nil {
		return false
	}
	claim, err := home.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	return err == nil && claim.DeletionTimestamp != nil
}

// next returns what the user does now; going says that the claim is being deleted already.
func next(volume *corev1.PersistentVolume, pods []corev1.Pod, going bool) []string {
	var lines []string
	for _, pod := range pods {
		switch {
		case slices.Contains(pod.Finalizers, keys.RemotePodFinalizer):
			lines = append(lines, fmt.Sprintf("next: kubectl lodestone release pod %s -n %s", pod.Name, pod.Namespace))
		case pod.DeletionTimestamp == nil:
			lines = append(lines, fmt.Sprintf("next: kubectl delete pod %s -n %s", pod.Name, pod.Namespace))
		}
	}
	switch ref := volume.Spec.ClaimRef; {
	case ref != nil && volume.Status.Phase == corev1.VolumeBound && !going:
		lines = append(lines, fmt.Sprintf("next: kubectl delete pvc %s -n %s", ref.Name, ref.Namespace))
	case ref != nil && volume.Status.Phase == corev1.VolumeBound:
	case volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		lines = append(lines, fmt.Sprintf("next: kubectl delete pv %s", volume.Name))
	}
	if ref := volume.Spec.ClaimRef; ref != nil && volume.Status.Phase == corev1.VolumeBound &&
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		lines = append(lines, fmt.Sprintf("then: kubectl delete pv %s", volume.Name))
	}
	return lines
}

// probeTimeout limits the one request that the plugin itself sends to a cluster.
const probeTimeout = 5 * time.Second

// silent asks the cluster itself, without credentials, whether it is there: the conditions of its
// RemoteCluster are as old as the provisioner's last probe. If the kubeconfig cannot be read, only
// the conditions count.
func silent(ctx context.Context, home *cli.Cluster, remote *v1alpha1.RemoteCluster) error {
	ref := remote.Spec.KubeconfigSecretRef
	secret, err := home.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return home.Explain("get Secret "+ref.Namespace+"/"+ref.Name, err)
	}
	key := ref.Key
	if key == "" {
		key = "kubeconfig"
	}
	config, err := clients.ParseKubeconfig(secret.Data[key])
	if err != nil {
		return nil //nolint:nilerr // nothing leads there, so it cannot be asked
	}
	if answers(ctx, config) {
		return cli.Refuse("cluster %q answers at %s, so nothing there is lost: see why the provisioner says otherwise (kubectl lodestone status)",
			remote.Name, config.Host)
	}
	return nil
}

// answers reports whether the API server that a kubeconfig names is there and ready. Another server
// at the same address has another certificate.
func answers(ctx context.Context, config *rest.Config) bool {
	config = rest.AnonymousClientConfig(config)
	config.Timeout = probeTimeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/readyz", config.Host), nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<10))
	_ = response.Body.Close()
	return response.StatusCode < http.StatusInternalServerError
}
