// Package witness finds out who has a volume, so that package proof can say when nobody has it: pods in any cluster,
// attachments, nodes that are silent, and pods that went without being seen to end (memory.go). It reads from API
// servers, never from caches. Start with Witness.
package witness

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// Witness finds out who has volumes.
type Witness struct {
	Sites site.Sites
	// HomeID is the ID of the home cluster.
	HomeID string
	// Node returns a home node from the cache, nil if there is none.
	Node func(name string) *corev1.Node
	// Memory has how home pods went.
	Memory *Memory
}

// Volume is one that others may have.
type Volume struct {
	// At is its cluster, Ref its backing claim there.
	At  site.Site
	Ref backing.Ref
	// Virtual is its virtual volume, Real the real one; nil if it has none.
	Virtual, Real *corev1.PersistentVolume
	// Mover is the name of the pod that reads or writes it and is not counted among its users.
	Mover string
}

// Users are those who have a volume by its backing claim or by an attachment, without its mover.
type Users struct {
	Volume
	// Others describes pods and ShadowPods that use it.
	Others []string
	// Pods use it and are not proven to have ended. Nodes are the nodes of these, Writers those of them that can write: that
	// have a node, and none of a home that represents a remote cluster.
	Pods    []corev1.Pod
	Nodes   []proof.Node
	Writers []proof.Pod
	// Ended have ended and still exist.
	Ended []types.UID
	// Attachments describes nodes that it is attached to; Attached says that it is attached under the virtual volume's name.
	Attachments []string
	Attached    bool
	// Err is the error of a remote cluster. After one nothing more is asked there.
	Err error

	// movers are the nodes of its mover; "" while that has none.
	movers map[string]bool
}

// ask sends requests to the cluster of a volume. An error of a remote cluster is kept in u.Err.
func (u *Users) ask(ctx context.Context, look func(context.Context) error) error {
	if u.Err != nil {
		return nil
	}
	ctx, cancel := u.At.WithTimeout(ctx)
	defer cancel()
	err := look(ctx)
	if u.At.Home {
		return err
	}
	u.Err = err
	return nil
}

// ReadPods finds the pods that use a volume, in the namespace and cluster of its backing claim. An error is of home.
func (w *Witness) ReadPods(ctx context.Context, u *Users) error {
	return u.ask(ctx, func(ctx context.Context) error { return w.readPods(ctx, u) })
}

func (w *Witness) readPods(ctx context.Context, u *Users) error {
	// Include pods that users of that cluster created.
	u.movers = map[string]bool{}
	var pods []corev1.Pod
	err := site.EachPage(ctx, metav1.ListOptions{}, u.At.Client.CoreV1().Pods(u.Ref.Namespace).List, func(page *corev1.PodList) {
		pods = append(pods, slices.DeleteFunc(page.Items, func(pod corev1.Pod) bool { return !Uses(&pod.Spec, u.Ref.Name) })...)
	})
	if err != nil {
		return fmt.Errorf("list pods beside real claim %s: %w", u.Ref.Key(), err)
	}
	for i := range pods {
		pod := &pods[i]
		switch known := home.NewPod(pod); {
		case known.Ended():
			// Controllers other than its node may set the phase Failed.
			u.Ended = append(u.Ended, pod.UID)
		case pod.Name == u.Mover:
			u.movers[pod.Spec.NodeName] = true
		default:
			u.Others = append(u.Others, "pod "+pod.Name+" in "+u.Ref.Cluster)
			u.Pods = append(u.Pods, *pod)
			if pod.Spec.NodeName != "" {
				u.Nodes = append(u.Nodes, proof.Node{Cluster: u.Ref.Cluster, Name: pod.Spec.NodeName})
			}
			if known.Node != "" && (!u.At.Home || w.IsHomePod(known)) {
				u.Writers = append(u.Writers, PodOf(u.Ref.Cluster, known))
			}
		}
	}
	if u.At.Remote == nil {
		return nil
	}
	ours := metav1.ListOptions{LabelSelector: keys.HomeID + "=" + w.HomeID}
	err = site.EachPage(ctx, ours, u.At.Remote.ShadowPods(u.Ref.Namespace).List, func(page *remotev1alpha1.ShadowPodList) {
		for i := range page.Items {
			// A ShadowPod that was not started yet may still be, until its home pod is gone.
			if shadow := &page.Items[i]; shadow.Name != u.Mover && Uses(&shadow.Spec.Pod.Spec, u.Ref.Name) {
				u.Others = append(u.Others, "ShadowPod "+shadow.Name+" in "+u.Ref.Cluster)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list ShadowPods beside real claim %s: %w", u.Ref.Key(), err)
	}
	return nil
}

// ReadAttachments finds the nodes that a volume is attached to. Call it after all pods were read, so that what a deleted
// pod has left is included. An error is of home.
func (u *Users) ReadAttachments(ctx context.Context) error { return u.ask(ctx, u.readAttachments) }

func (u *Users) readAttachments(ctx context.Context) error {
	var asVirtual, asReal []string
	err := site.EachPage(ctx, metav1.ListOptions{}, u.At.Client.StorageV1().VolumeAttachments().List,
		func(page *storagev1.VolumeAttachmentList) {
			virtual, real := attachmentsOf(page.Items, u.Virtual, u.Real)
			asVirtual, asReal = append(asVirtual, virtual...), append(asReal, real...)
		})
	if err != nil {
		return fmt.Errorf("list attachments: %w", err)
	}
	u.Attached = u.At.Home && len(asVirtual) > 0
	if u.movers[""] {
		// The mover may have got its node, and the volume been attached there, since its pod
		// was read: that is for the next observation.
		asReal = nil
	}
	for _, node := range append(asVirtual, asReal...) {
		if !u.movers[node] {
			u.Attachments = append(u.Attachments, "node "+node+", which it is attached to")
		}
	}
	return nil
}

// attachmentsOf returns the nodes that a volume is attached to, by its two names: to a
// driver the virtual volume and the real one are the same, and the name is that of whichever
// was attached first.
func attachmentsOf(attachments []storagev1.VolumeAttachment, virtual, real *corev1.PersistentVolume) (asVirtual, asReal []string) {
	for _, attachment := range attachments {
		switch name := attachment.Spec.Source.PersistentVolumeName; {
		case name == nil:
		case virtual != nil && *name == virtual.Name:
			asVirtual = append(asVirtual, attachment.Spec.NodeName)
		case real != nil && *name == real.Name:
			asReal = append(asReal, attachment.Spec.NodeName)
		}
	}
	return asVirtual, asReal
}

// AddTo adds what was read of a volume to what was seen of all volumes. Known are the pods that are remembered.
func (u *Users) AddTo(seen *proof.Seen, known proof.Known) {
	seen.Others = append(seen.Others, u.Others...)
	seen.Attachments = append(seen.Attachments, u.Attachments...)
	seen.Users = append(seen.Users, u.Nodes...)
	seen.Writers = append(seen.Writers, u.Writers...)
	for _, pod := range known.Pods {
		// What another cluster says of a pod with that UID does not count.
		if pod.On().Cluster == u.Ref.Cluster && slices.Contains(u.Ended, pod.UID) {
			seen.NoteEnded(pod.UID)
		}
	}
}

// Claim is a claim by which pods use a volume, with its cluster: a virtual one of home, or a backing claim.
type Claim struct{ Cluster, Namespace, Name string }

// AddEnded adds to what was seen which pods that used claims are gone, and whether they had ended. IsMover says of a pod
// of a cluster whether it is a mover, which are not looked at.
func (w *Witness) AddEnded(seen *proof.Seen, known proof.Known, watchers Watchers, claims []Claim,
	isMover func(cluster, name string) bool) {
	var atHome []string
	for _, claim := range claims {
		key := claim.Namespace + "/" + claim.Name
		if claim.Cluster == keys.Home {
			atHome = append(atHome, key)
		} else if l := watchers[remoteNamespace{claim.Cluster, claim.Namespace}]; l != nil {
			for _, pod := range l.memory.unendedUsers([]string{key}) {
				if !isMover(claim.Cluster, pod.Name) {
					seen.Unended = append(seen.Unended, PodOf(claim.Cluster, pod))
				}
			}
		}
	}
	for _, pod := range w.Memory.unendedUsers(atHome) {
		if w.IsHomePod(pod) && !isMover(keys.Home, pod.Name) {
			seen.Unended = append(seen.Unended, PodOf(keys.Home, pod))
		}
	}
	for _, pod := range known.Pods {
		if pod.Cluster == "" && w.Memory.sawEnd(pod.UID) || pod.Cluster != "" && watchers.sawEnd(pod.Cluster, pod.UID) {
			seen.NoteEnded(pod.UID)
		}
	}
}

// ReadNodes reads the states of nodes; those that are ready are left out. An error is of home, and the states that were
// read are returned with it.
func (w *Witness) ReadNodes(ctx context.Context, nodes []proof.Node) (map[proof.Node]proof.Absence, error) {
	looks, found := make([]func() error, len(nodes)), make([]proof.Absence, len(nodes))
	for i, node := range nodes {
		looks[i] = func() error {
			at, why := w.Sites.Reach(node.Cluster)
			if why != "" {
				found[i].Why = why
				return nil
			}
			var err error
			if found[i], err = absenceOf(ctx, at, node.Name); err != nil && !at.Home {
				w.Sites.Recheck(node.Cluster)
				found[i].Why, err = err.Error(), nil
			}
			return err
		}
	}
	err := site.AtOnce(looks)
	absent := map[proof.Node]proof.Absence{}
	for i, node := range nodes {
		if found[i] != (proof.Absence{}) {
			absent[node] = found[i]
		}
	}
	return absent, err
}

// absenceOf reads the state of a node from the API server, never from a cache; the zero
// value means that it is ready.
func absenceOf(ctx context.Context, at site.Site, name string) (proof.Absence, error) {
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	nodes, err := at.Client.CoreV1().Nodes().List(ctx,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return proof.Absence{}, fmt.Errorf("look at node %s: %w", name, err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		switch {
		case node.Name != name:
			continue
		case slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService }):
			return proof.Absence{Off: true}, nil
		case slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}):
			return proof.Absence{}, nil
		}
		return proof.Absence{Why: "the node is not ready"}, nil
	}
	return proof.Absence{Off: true}, nil
}

// IsHome says whether a node represents no remote cluster, as far as known.
func (w *Witness) IsHome(name string) bool {
	node := w.Node(name)
	return node == nil || locality.OfNode(node.Labels) == keys.Home
}

// IsHomePod says whether a pod is bound to a real home node. Pods on other nodes are kept
// by the virtual node until they are proven to have ended.
func (w *Witness) IsHomePod(pod *home.Pod) bool { return pod.Node != "" && w.IsHome(pod.Node) }

// PodOf returns what is remembered of a pod of a cluster. A remote cluster's values are cut,
// since it may send anything.
func PodOf(cluster string, pod *home.Pod) proof.Pod {
	known := proof.Pod{UID: pod.UID, Name: pod.Name, Node: pod.Node, Grace: pod.Grace}
	if cluster != keys.Home {
		known.Hosted = pod.Hosted
		known.Cluster, known.UID = cluster, known.UID[:min(len(known.UID), 64)]
		known.Name, known.Node = known.Name[:min(len(known.Name), 253)], known.Node[:min(len(known.Node), 253)]
	}
	return known
}

// Uses says whether a pod mounts a claim of its namespace.
func Uses(spec *corev1.PodSpec, claim string) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// NodeOfUsers returns the node on which pods use a virtual claim in the cluster of its backing claim, except the pod of a name; empty
// if none does. Where pods end on one node and none runs on another, the volume may still be there.
func (w *Witness) NodeOfUsers(ctx context.Context, at site.Site, virtual types.NamespacedName, ref backing.Ref,
	except string) (string, error) {
	namespace, claim, options := virtual.Namespace, virtual.Name, metav1.ListOptions{}
	if !at.Home {
		namespace, claim, options.LabelSelector = ref.Namespace, ref.Name, keys.HomeID+"="+w.HomeID
	}
	node, ending := "", ""
	err := site.EachPage(ctx, options, at.Client.CoreV1().Pods(namespace).List, func(page *corev1.PodList) {
		for i := range page.Items {
			pod := &page.Items[i]
			switch {
			case pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
				!Uses(&pod.Spec, claim) || pod.Name == except:
			case pod.DeletionTimestamp == nil:
				node = cmp.Or(node, pod.Spec.NodeName)
			default:
				ending = pod.Spec.NodeName
			}
		}
	})
	if err != nil {
		return "", fmt.Errorf("list pods that use claim %s: %w", virtual.Name, err)
	}
	return cmp.Or(node, ending), nil
}
