// Package copying copies volumes: it makes the movers at both ends (copier.go) and connects them, as package transport
// chooses (connection.go, routes.go, splice.go, forward.go). What is copied when, and whether both copies are the same, is
// decided by those who have it copied, from what the movers say. Start with Copier.
package copying

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// Copier makes, connects and ends movers.
type Copier struct {
	Sites site.Sites
	// Networks are those in which movers may dial each other.
	Networks transport.Networks
	routes   routes
}

// Make creates a mover, without starting it. It must run on a node, or anywhere in its cluster if that is empty, and near
// another one where that has room; empty: near none.
func (c *Copier) Make(ctx context.Context, m movers.Mover, node, near string) error {
	at, err := c.Sites.At(m.Ref.Cluster)
	if err != nil {
		return err
	}
	namespace, name, labels := m.Ref.Namespace, m.Name, movers.Labels(m)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	spec := movers.PodSpec(m, node)
	if near != "" {
		spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 100,
			Preference: movers.OnNode(near)}}
	}
	if at.Home {
		spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: keys.MovingGate}}
		_, err = at.Client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
	} else {
		if at.Remote == nil {
			return site.ErrUnreachable(fmt.Sprintf("cluster %s runs no remote agent, which a move needs: install deploy/remote there",
				m.Ref.Cluster))
		}
		meta.Finalizers = []string{keys.ShadowPodFinalizer}
		_, err = at.Remote.ShadowPods(namespace).Create(ctx, &remotev1alpha1.ShadowPod{ObjectMeta: meta, Spec: remotev1alpha1.ShadowPodSpec{
			Home: remotev1alpha1.HomePod{Cluster: m.HomeID, Namespace: m.For.Namespace, Name: m.For.Name, UID: m.For.UID},
			Pod:  corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		}}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make mover %s/%s: %w", namespace, name, err)
	}
	return nil
}

// Start creates the keys of a mover and starts it. It is a step of its own, so
// that a late request to create a mover starts nothing.
func (c *Copier) Start(ctx context.Context, m movers.Mover) error {
	at, err := c.Sites.At(m.Ref.Cluster)
	if err != nil {
		return err
	}
	namespace, name := m.Ref.Namespace, m.Name
	owner, err := moverOwner(ctx, at, namespace, name)
	if err != nil {
		return err
	}
	if err := createKeySecret(ctx, at, m, owner); err != nil {
		return err
	}
	if at.Home {
		return OpenGate(ctx, at.Client, namespace, name, owner.UID)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"start":true}}`, owner.UID)
	if _, err := at.Remote.ShadowPods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("start mover %s/%s: %w", namespace, name, err)
	}
	return nil
}

// moverOwner reads a mover and returns it as the owner of its Secret.
func moverOwner(ctx context.Context, at site.Site, namespace, name string) (owner metav1.OwnerReference, err error) {
	var mover metav1.Object
	if at.Home {
		mover, err = at.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		owner.APIVersion, owner.Kind = "v1", "Pod"
	} else {
		mover, err = at.Remote.ShadowPods(namespace).Get(ctx, name, metav1.GetOptions{})
		owner.APIVersion, owner.Kind = remotev1alpha1.GroupVersion.String(), "ShadowPod"
	}
	if err != nil {
		return owner, fmt.Errorf("look at mover %s/%s: %w", namespace, name, err)
	}
	owner.Name, owner.UID = name, mover.GetUID()
	return owner, nil
}

// createKeySecret creates the Secret with the keys of a mover that was not started. The
// mover owns it: if the Secret is created late, when the mover is gone, garbage collection
// deletes it, and nobody needs the right to read Secrets to find it.
func createKeySecret(ctx context.Context, at site.Site, m movers.Mover, owner metav1.OwnerReference) error {
	secret, err := keySecret(m, owner)
	if err != nil {
		return err
	}
	secrets := at.Client.CoreV1().Secrets(secret.Namespace)
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// An existing one may belong to an earlier mover of this name, and be collected
		// with that.
		if err := site.IgnoreGone(secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{}), "replace Secret of mover "+secret.Namespace+"/"+
			secret.Name); err != nil {
			return err
		}
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make Secret of mover %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// keySecret returns the Secret with the keys of a mover, which owns it.
func keySecret(m movers.Mover, owner metav1.OwnerReference) (*corev1.Secret, error) {
	data := map[string][]byte(maps.Clone(m.Keys))
	if m.Store != nil {
		files, err := m.Store.Files()
		if err != nil {
			return nil, err
		}
		maps.Copy(data, files)
	}
	meta := metav1.ObjectMeta{
		Namespace: m.Ref.Namespace, Name: owner.Name, Labels: movers.Labels(m), OwnerReferences: []metav1.OwnerReference{owner},
	}
	return &corev1.Secret{ObjectMeta: meta, Data: data}, nil
}

// GiveKeys creates the Secret of a started mover if there is none: a late request
// to delete an earlier one, or somebody else, may have deleted it. Without the right to
// read Secrets that cannot be observed. The mover's node waits for the Secret.
func (c *Copier) GiveKeys(ctx context.Context, m movers.Mover) error {
	at, err := c.Sites.At(m.Ref.Cluster)
	if err != nil {
		return err
	}
	owner, err := moverOwner(ctx, at, m.Ref.Namespace, m.Name)
	if err != nil {
		return err
	}
	secret, err := keySecret(m, owner)
	if err != nil {
		return err
	}
	_, err = at.Client.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make Secret of mover %s/%s again: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// Drop deletes a mover and its keys.
func (c *Copier) Drop(ctx context.Context, m movers.Mover) error {
	at, err := c.Sites.At(m.Ref.Cluster)
	if err != nil {
		return err
	}
	namespace, name := m.Ref.Namespace, m.Name
	err = at.Client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove Secret of mover %s/%s: %w", namespace, name, err)
	}
	if at.Home {
		err = at.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(movers.GracePeriod(m, 1))})
	} else {
		err = at.Remote.ShadowPods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove mover %s/%s: %w", namespace, name, err)
	}
	return nil
}

// Read reads a mover in its cluster. pod is nil if there is none. The problem of the state may be a text of another cluster.
func Read(ctx context.Context, at site.Site, of movers.Mover) (m movers.State, pod *corev1.Pod, err error) {
	ref, namespace, name := of.Ref, of.Ref.Namespace, of.Name
	var shadow *remotev1alpha1.ShadowPod
	if at.Remote != nil {
		shadow, err = at.Remote.ShadowPods(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && shadow.Labels[keys.MoveOf] == string(of.For.UID):
			m.Exists, m.Leaving = true, shadow.DeletionTimestamp != nil
			m.Unstarted = !shadow.Spec.Start
			m.Ended = shadow.Status.Phase == remotev1alpha1.ShadowPodLost
			m.Problem = shadow.Status.Message
		case err != nil && !apierrors.IsNotFound(err):
			return m, nil, fmt.Errorf("look at ShadowPod %s/%s: %w", namespace, name, err)
		default:
			shadow = nil
		}
	}
	pod, err = at.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if pod, err = site.FoundOrNil(at, pod, err, fmt.Sprintf("mover %s/%s", namespace, name)); err != nil {
		return m, nil, err
	}
	if pod == nil {
		if m.Exists && !m.Leaving && !m.Unstarted && m.Problem == "" {
			m.Problem = whyNotRunning(ctx, at, ref, nil)
		}
		return m, nil, nil
	}
	if at.Remote != nil && !isPodOf(shadow, pod) {
		// Anybody who may create pods in that namespace can use a mover's name.
		if m.Problem == "" {
			m.Problem = fmt.Sprintf("pod %s/%s is there already and is no mover: delete it", namespace, name)
		}
		return m, nil, nil
	}
	m.Exists, m.Pod, m.IPs, m.Node = true, pod.UID, addressesOf(pod), pod.Spec.NodeName
	m.Unstarted = m.Unstarted || at.Home && isGated(pod)
	m.Leaving = m.Leaving || pod.DeletionTimestamp != nil
	m.Ended = m.Ended || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if problem := problemOf(pod); problem != "" {
		m.Problem = problem
	}
	m.Running = !m.Leaving && !m.Ended && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" &&
		!slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running == nil })
	if !m.Running && !m.Leaving && m.Problem == "" {
		m.Problem = whyNotRunning(ctx, at, ref, pod)
	}
	return m, pod, nil
}

// isGated says whether a pod waits at the gate of movers and moves.
func isGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == keys.MovingGate })
}

// OpenGate removes that gate from a pod, if it is the one with this UID.
func OpenGate(ctx context.Context, client kubernetes.Interface, namespace, name string, pod types.UID) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"schedulingGates":[{"$patch":"delete","name":%q}]}}`, pod, keys.MovingGate)
	_, err := client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return site.IgnoreGone(err, "let pod "+name+" go on")
}

// isPodOf says whether a pod was created for a ShadowPod. The ShadowPod may be gone before
// its pod, and its status may not name the pod yet.
func isPodOf(shadow *remotev1alpha1.ShadowPod, pod *corev1.Pod) bool {
	if pod.UID == "" {
		return false
	}
	if shadow != nil && shadow.Status.PodUID == pod.UID {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ShadowPod" && owner.Name == pod.Name && (shadow == nil || owner.UID == shadow.UID)
}

// addressesOf returns the addresses in a pod's status.
func addressesOf(pod *corev1.Pod) []string {
	var found []string
	for _, ip := range pod.Status.PodIPs {
		found = append(found, ip.IP)
	}
	return found
}

// problemOf describes what keeps a pod from running, according to its status.
func problemOf(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Message != "" {
		// For example because its node had too little memory or disk left.
		return fmt.Sprintf("its node %s ended it (%s): %s", pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message)
	}
	for _, condition := range pod.Status.Conditions {
		// A mover waits at its gate for its keys, which is no problem.
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse &&
			condition.Reason != corev1.PodReasonSchedulingGated {
			return condition.Message
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" {
			return waiting.Reason + " " + waiting.Message
		}
		if ended := status.State.Terminated; ended != nil {
			return fmt.Sprintf("its program ended with code %d (%s %s) and is started again: see the log of pod %s/%s", ended.ExitCode, ended.Reason,
				ended.Message, pod.Namespace, pod.Name)
		}
	}
	return ""
}

// warningsAfter is how long a mover may take to start before its events are read.
const warningsAfter = 2 * time.Second

// whyNotRunning says why a mover does not run whose status gives no reason: the state of
// its pod, and the latest warning about the pod or its claim. pod is nil while a ShadowPod
// has none.
func whyNotRunning(ctx context.Context, at site.Site, ref backing.Ref, pod *corev1.Pod) string {
	if pod == nil {
		return "the remote agent of cluster " + ref.Cluster + " has not made its pod yet: if this lasts, see whether the agent runs, and the " +
			"events of the ShadowPod there"
	}
	text := "it starts on node " + pod.Spec.NodeName
	if pod.Spec.NodeName == "" {
		text = "it has no node yet"
		if claim, err := at.Claim(ctx, ref.Namespace, ref.Name); err == nil && claim != nil && claim.Status.Phase != corev1.ClaimBound {
			text += fmt.Sprintf(", and its real claim %s is %s", ref.Key(), claim.Status.Phase)
		}
	}
	// The clock of the cluster may be ahead.
	if age := time.Since(pod.CreationTimestamp.Time); age >= 0 && age < warningsAfter {
		return text
	}
	warned := lastWarning(ctx, at, ref.Namespace, pod.Name, pod.UID)
	if warned == "" {
		warned = lastWarning(ctx, at, ref.Namespace, ref.Name, "")
	}
	if warned == "" {
		return text
	}
	return text + ": " + warned
}

// lastWarning returns the latest warning about the object of a name, and of a UID unless that is empty; empty if there is none or
// events cannot be read: they are for people only, and no decision depends on them.
func lastWarning(ctx context.Context, at site.Site, namespace, name string, uid types.UID) string {
	list, err := at.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.name": name, "type": corev1.EventTypeWarning}.String(),
	})
	if err != nil {
		return ""
	}
	var last *corev1.Event
	for i := range list.Items {
		event := &list.Items[i]
		// An earlier mover had the same name.
		if event.InvolvedObject.Name != name || uid != "" && event.InvolvedObject.UID != "" && event.InvolvedObject.UID != uid {
			continue
		}
		if last == nil || !eventTime(event).Before(eventTime(last)) {
			last = event
		}
	}
	if last == nil {
		return ""
	}
	return last.Reason + ": " + last.Message
}

// eventTime is when an event last happened.
func eventTime(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	if event.LastTimestamp.IsZero() {
		return event.EventTime.Time
	}
	return event.LastTimestamp.Time
}

// keysAfter is how long a started mover may take to run before its keys are created again,
// repeatedly: less than people would wait, more than pulling most images takes.
const keysAfter = 20 * time.Second

// Keyless has the pods of movers that were started, have a node and do not run, with
// the time when their keys are created again, by home's clock.
type Keyless map[types.UID]time.Time

// Note updates the pods, and marks movers that may lack their keys.
func (t *Keyless) Note(now time.Time, all ...*movers.State) {
	next := Keyless{}
	for _, m := range all {
		if m.Pod == "" || m.Node == "" || m.Running || m.Unstarted || m.Leaving || m.Ended {
			continue
		}
		at, known := (*t)[m.Pod]
		m.Keyless = known && !now.Before(at)
		if !known || m.Keyless {
			at = now.Add(keysAfter)
		}
		next[m.Pod] = at
	}
	*t = next
}
