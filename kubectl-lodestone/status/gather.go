package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/explain"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// shown is how many waiting pods and claims are explained: each costs some requests.
const shown = 20

// reading reads what a Status is made from, and records what the user may not read.
type reading struct {
	home      *cli.Cluster
	lodestone string
	unread    []string
}

// may reports whether a request succeeded. If the user has not the right to read something, it
// records that and returns no error.
func (r *reading) may(what string, err error) (bool, error) {
	if apierrors.IsForbidden(err) {
		if !slices.Contains(r.unread, what) {
			r.unread = append(r.unread, what)
		}
		return false, nil
	}
	return err == nil, r.home.Explain("list "+what, err)
}

// read reads all but what the sentences need. With a namespace, claims, moves and replicas are those of it.
func (r *reading) read(ctx context.Context, namespace string) (f facts, err error) {
	remotes, err := r.home.Remotes.List(ctx, metav1.ListOptions{})
	if ok, err := r.may(remoteClusters, err); err != nil {
		return f, err
	} else if ok {
		f.remotes = remotes.Items
	}
	nodes, err := r.home.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if ok, err := r.may("nodes", err); err != nil {
		return f, err
	} else if ok {
		f.nodes = nodes.Items
	}
	volumes, err := r.home.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if ok, err := r.may("persistentvolumes", err); err != nil {
		return f, err
	} else if ok {
		f.volumes = volumes.Items
	}
	// Pods of all namespaces count for the clusters.
	pods, err := within(namespace, func(namespace string) (*corev1.PodList, error) {
		return r.home.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	})
	if ok, err := r.may("pods", err); err != nil {
		return f, err
	} else if ok {
		f.pods = pods.Items
	}
	sets, err := within(namespace, func(namespace string) (*appsv1.DaemonSetList, error) {
		return r.home.Client.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
	})
	if ok, err := r.may("daemonsets", err); err != nil {
		return f, err
	} else if ok {
		f.sets = sets.Items
	}
	classes, err := r.home.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if ok, err := r.may("storageclasses", err); err != nil {
		return f, err
	} else if ok {
		f.classes = classes.Items
	}
	claims, err := r.home.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if ok, err := r.may("persistentvolumeclaims", err); err != nil {
		return f, err
	} else if ok {
		f.claims = claims.Items
	}
	moves, err := r.home.Moves.In(namespace).List(ctx, metav1.ListOptions{})
	if ok, err := r.may("volumemoves", err); err != nil {
		return f, err
	} else if ok {
		f.moves = moves.Items
	}
	replicas, err := r.home.Moves.Replicas(namespace).List(ctx, metav1.ListOptions{})
	if ok, err := r.may("volumereplicas", missing(err)); err != nil {
		return f, err
	} else if ok && replicas != nil { // an older home has none
		f.replicas = replicas.Items
	}
	if !slices.ContainsFunc(watched, func(w source) bool { return !slices.Contains(r.unread, w.resource) }) {
		return f, fmt.Errorf("you may not list any of %s in the cluster of context %q: ask its administrator for that right, or give -n with a "+
			"namespace of yours", strings.Join(r.unread, ", "), r.home.Context)
	}
	return f, r.logins(ctx, &f)
}

// within lists objects of all namespaces or, if the user may not and one namespace is shown, those of that.
func within[L any](namespace string, list func(namespace string) (L, error)) (L, error) {
	all, err := list(metav1.NamespaceAll)
	if apierrors.IsForbidden(err) && namespace != metav1.NamespaceAll {
		return list(namespace)
	}
	return all, err
}

// logins reads how home logs in to the remote clusters, and when their nodes were last reported.
func (r *reading) logins(ctx context.Context, f *facts) error {
	f.heartbeats, f.kubeconfigs = map[string]metav1.Time{}, map[string][]byte{}
	for _, remote := range f.remotes {
		ref := remote.Spec.KubeconfigSecretRef
		secret, err := r.home.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if ok, err := r.may("secrets", missing(err)); err != nil {
			return err
		} else if ok && secret != nil {
			key := ref.Key
			if key == "" {
				key = credentials.Key
			}
			f.kubeconfigs[remote.Name] = secret.Data[key]
		}
	}
	for _, node := range f.nodes {
		if node.Labels[keys.Cluster] == "" {
			continue
		}
		lease, err := r.home.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
		if ok, err := r.may("leases", missing(err)); err != nil {
			return err
		} else if ok && lease.Spec.RenewTime != nil {
			f.heartbeats[node.Name] = metav1.Time{Time: lease.Spec.RenewTime.Time}
		}
	}
	return nil
}

// missing returns nil for the error that an object does not exist.
func missing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// waits is a pod or a claim that is to be explained.
type waits struct {
	claim *corev1.PersistentVolumeClaim
	pod   *corev1.Pod
}

// unexplained returns it without a sentence.
func (w waits) unexplained() Waiting {
	if w.claim != nil {
		return Waiting{Kind: "PersistentVolumeClaim", Namespace: w.claim.Namespace, Name: w.claim.Name}
	}
	return Waiting{Kind: "Pod", Namespace: w.pod.Namespace, Name: w.pod.Name}
}

func (w Waiting) compare(other Waiting) int {
	return cmp.Or(strings.Compare(w.Namespace, other.Namespace), strings.Compare(w.Kind, other.Kind), strings.Compare(w.Name, other.Name))
}

// waiting returns the claims of virtual classes that wait or have something wrong with their volume, and the waiting pods that
// concern remote clusters.
func (f facts) waiting(show only) (list []waits) {
	virtual, uses, going := virtualClasses(f.classes), map[string]bool{}, map[string]bool{}
	for i := range f.volumes {
		going[f.volumes[i].Name] = f.volumes[i].DeletionTimestamp != nil
	}
	for i := range f.claims {
		claim := &f.claims[i]
		if !isVirtual(virtual, claim) {
			continue
		}
		uses[claim.Namespace+"/"+claim.Name] = true
		if !show.has(claim.Namespace, claim.Labels) {
			continue
		}
		if explain.ClaimMayWait(claim) || going[claim.Spec.VolumeName] {
			list = append(list, waits{claim: claim})
		}
	}
	for i := range f.pods {
		pod := &f.pods[i]
		if show.has(pod.Namespace, pod.Labels) && f.concerns(pod, uses) {
			list = append(list, waits{pod: pod})
		}
	}
	// Those that are explained stay the same ones.
	slices.SortFunc(list, func(a, b waits) int { return a.unexplained().compare(b.unexplained()) })
	return list
}

// waiting explains what waits.
func (r *reading) waiting(ctx context.Context, f facts, show only) (list []Waiting, omitted int, err error) {
	list = []Waiting{}
	g := &explain.Gatherer{Home: r.home, Lodestone: r.lodestone}
	for _, w := range f.waiting(show) {
		if len(list) == shown {
			omitted++
			continue
		}
		one, kind := w.unexplained(), cli.Pod
		if w.claim != nil {
			kind = cli.Claim
		}
		answer, found, err := g.Find(ctx, one.Namespace, cli.Reference{Kind: kind, Name: one.Name})
		if err != nil {
			return nil, 0, err
		}
		if found && answer.Waiting { // one that is gone meanwhile does not wait
			one.Why = answer.Sentence
			list = append(list, one)
		}
	}
	return list, omitted, nil
}

func virtualClasses(classes []storagev1.StorageClass) map[string]bool {
	virtual := map[string]bool{}
	for _, class := range classes {
		virtual[class.Name] = virtualclass.Is(&class)
	}
	return virtual
}

// isVirtual reports whether a claim is of one of the virtual classes. Kubernetes writes the provisioner on a claim whose volume is made:
// that is all that is known where classes cannot be read.
func isVirtual(classes map[string]bool, claim *corev1.PersistentVolumeClaim) bool {
	return classes[ptr.Deref(claim.Spec.StorageClassName, "")] || claim.Annotations[keys.StorageProvisioner] == keys.Driver
}

// concerns reports whether a pod waits and concerns remote clusters: it uses a virtual claim, or is
// on a virtual node. uses are the virtual claims. One that runs and is not ready waits, too, and one
// that has failed does not any more.
func (f facts) concerns(pod *corev1.Pod, uses map[string]bool) bool {
	held := slices.Contains(pod.Finalizers, keys.RemotePodFinalizer)
	if pod.DeletionTimestamp != nil {
		return held
	}
	if pod.Status.Phase == corev1.PodFailed || !explain.PodMayWait(pod) {
		return false
	}
	if held {
		return true
	}
	for _, node := range f.nodes {
		if node.Name == pod.Spec.NodeName && node.Labels[keys.Cluster] != "" {
			return true
		}
	}
	return slices.ContainsFunc(explain.ClaimNames(pod), func(name string) bool { return uses[pod.Namespace+"/"+name] })
}
