// This file judges why a pod waits, from what was read of it, its claims and their clusters. It is long because it is a list of
// causes, in the order in which they come before each other.

package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Of returns why a pod waits, or that it does not.
func (p Pod) Of(s Setting) Answer {
	answer := s.withNamespace(p.judge(s), fmt.Sprintf("pod %q", p.Pod.Name), p.Pod.DeletionTimestamp != nil)
	answer.Facts = p.facts(s, answer.Sentence)
	return answer.plain()
}

func (p Pod) judge(s Setting) Answer {
	pod := p.Pod
	switch {
	case pod.DeletionTimestamp != nil:
		return p.deleting(s)
	case pod.Status.Phase == corev1.PodSucceeded:
		return fine("pod %q has ended well", pod.Name)
	case pod.Status.Phase == corev1.PodFailed:
		return waits("pod %q has failed: %s", pod.Name, failure(pod))
	case pod.Spec.NodeName == "":
		return p.unscheduled(s)
	}
	return p.scheduled(s)
}

func failure(pod *corev1.Pod) string {
	if pod.Status.Message != "" {
		return pod.Status.Message
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := status.State.Terminated; t != nil && t.ExitCode != 0 {
			return fmt.Sprintf("container %q ended with code %d (%s): kubectl logs %s -n %s -c %s", status.Name, t.ExitCode, t.Reason, pod.Name,
				pod.Namespace, status.Name)
		}
	}
	if pod.Status.Reason != "" {
		return pod.Status.Reason
	}
	return "kubectl describe pod says more"
}

// container returns what the first container that is not running waits for.
func container(pod *corev1.Pod) string {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting := status.State.Waiting
		if waiting == nil || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing" || waiting.Reason == "" {
			continue
		}
		hint := ""
		if last := status.LastTerminationState.Terminated; last != nil && last.Reason == "OOMKilled" {
			hint = "; its last run was ended because it used more memory than it may: raise resources.limits.memory"
		} else if waiting.Reason == "CrashLoopBackOff" {
			hint = fmt.Sprintf(": kubectl logs %s -n %s -c %s --previous", pod.Name, pod.Namespace, status.Name)
		}
		return fmt.Sprintf("container %q waits (%s): %s%s", status.Name, waiting.Reason, first(waiting.Message, "kubectl describe pod says more"),
			hint)
	}
	return ""
}

// deleting returns what a pod that is being deleted waits for.
func (p Pod) deleting(s Setting) Answer {
	pod, node := p.Pod, s.node(p.Pod.Spec.NodeName)
	if !slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) {
		if others := pod.Finalizers; len(others) > 0 {
			return waits("pod %q is being deleted and is held by %s", pod.Name, strings.Join(others, ", "))
		}
		if node == nil && !s.NodesUnknown {
			return waits("pod %q is being deleted, and its node %q is gone: Kubernetes removes the pod within a minute", pod.Name, pod.Spec.NodeName)
		}
		return waits("pod %q is being deleted: its containers have until %s to end", pod.Name, pod.DeletionTimestamp.UTC().Format("15:04:05"))
	}
	cluster := pod.Spec.NodeName
	if node != nil && node.Labels[keys.Cluster] != "" {
		cluster = node.Labels[keys.Cluster]
	}
	if event := latest(p.Events, reasons("OtherCluster")); event != nil {
		return waits("pod %q is being deleted, but %s", pod.Name, event.Message)
	}
	problem := ""
	switch {
	case s.NodesUnknown:
	case node == nil:
		problem = "its node is gone"
	default:
		problem = down(node)
	}
	if problem != "" {
		return waits("pod %q is being deleted, but whether its copy in %s has ended cannot be seen (%s): it goes by itself once that cluster "+
			"answers; if that cluster is gone for ever: kubectl lodestone release pod %s -n %s", pod.Name, place(cluster), problem, pod.Name,
			pod.Namespace)
	}
	return waits("pod %q is being deleted and waits until its copy in %s has ended", pod.Name, place(cluster))
}

// scheduled returns why a pod that has a node does not run.
func (p Pod) scheduled(s Setting) Answer {
	pod, node := p.Pod, s.node(p.Pod.Spec.NodeName)
	where := fmt.Sprintf("on node %q", pod.Spec.NodeName)
	if node != nil && node.Labels[keys.Cluster] != "" {
		where = "in " + place(node.Labels[keys.Cluster])
	}
	if node != nil {
		if problem := down(node); problem != "" {
			return waits("pod %q is %s, which does not answer: %s; it may still run there", pod.Name, where, problem)
		}
	} else if !s.NodesUnknown {
		return waits("pod %q is on node %q, which is gone: delete the pod if it is not replaced by itself", pod.Name, pod.Spec.NodeName)
	}
	if sentence := container(pod); sentence != "" {
		return waits("pod %q is %s: %s", pod.Name, where, sentence)
	}
	if pod.Status.Phase == corev1.PodRunning {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
				return waits("pod %q runs %s but is not Ready: %s", pod.Name, where, p.notReady(s, c))
			}
		}
		return fine("pod %q runs %s", pod.Name, where)
	}
	return p.starting(s, where)
}

// unscheduled returns why a pod has no node.
func (p Pod) unscheduled(s Setting) Answer {
	pod := p.Pod
	if len(pod.Spec.SchedulingGates) > 0 {
		gate := pod.Spec.SchedulingGates[0].Name
		claim, misbound := p.locked()
		if gate == keys.MovingGate && misbound != "" {
			return waits("pod %q is held back by scheduling gate %q, for claim %q cannot be used: %s", pod.Name, gate, claim, misbound)
		}
		if gate == keys.MovingGate && claim != "" {
			return waits("pod %q is held back by scheduling gate %q, for newer data of claim %q exists than its volume has: kubectl lodestone "+
				"choose pvc %s -n %s shows what there is to choose from", pod.Name, gate, claim, claim, pod.Namespace)
		}
		if gate == keys.MovingGate {
			return waits("pod %q is held back by scheduling gate %q while the volume of a claim of it is moved: kubectl lodestone move status -n "+
				"%s says how far that is", pod.Name, gate, pod.Namespace)
		}
		return waits("pod %q is held back by scheduling gate %q: whoever set it removes it", pod.Name, gate)
	}
	for _, claim := range p.Claims {
		c := claim.Claim
		switch {
		case c == nil, c.DeletionTimestamp != nil, c.Status.Phase == corev1.ClaimLost:
			return waits("pod %q has no node, for %s", pod.Name, claim.judge(s).Sentence)
		}
	}
	if answer, ok := p.byData(s); ok {
		return answer
	}
	for _, claim := range p.Claims {
		if claim.Claim.Status.Phase == corev1.ClaimBound {
			continue
		}
		if claim.Class != nil && !virtualclass.Is(claim.Class) {
			if answer, ok := claim.ofOthers(s); ok {
				return waits("pod %q has no node yet, for %s", pod.Name, answer.Sentence)
			}
			continue
		}
		answer := claim.judge(s)
		_, refused := newestRefusal(claim.Claim, s.Now)
		event := latest(claim.Events, stuck)
		switch {
		case claim.Class == nil, refused, event != nil && s.Now.Sub(when(*event)) < memory, claim.Claim.Annotations[keys.SelectedNode] != "":
			return waits("pod %q has no node yet, for %s", pod.Name, answer.Sentence)
		}
	}
	if wanted := wanted(pod); wanted != "" {
		if reason := p.barred(s, wanted); reason != "" {
			return waits("pod %q is to run in %s, but %s", pod.Name, place(wanted), reason)
		}
	}
	if answer, ok := nominated(pod); ok {
		return answer
	}
	if message := scheduler(pod); message != "" {
		return waits("pod %q fits no node: %s", pod.Name, message)
	}
	return waits("no scheduler has looked at pod %q yet: see whether scheduler %q runs", pod.Name, pod.Spec.SchedulerName)
}

// locked returns a claim of the pod that is locked without a move, empty for none: its twin is bound to another volume, as
// misbound says, or else newer data of it exists.
func (p Pod) locked() (claim, misbound string) {
	for _, c := range p.Claims {
		if c.Claim == nil || c.Claim.Annotations[keys.Move] != keys.NoMove {
			continue
		}
		for _, condition := range c.Claim.Status.Conditions {
			if condition.Type == keys.VolumeTrouble && condition.Reason == "BackingMisbound" {
				misbound = condition.Message
			}
		}
		return c.Name, misbound
	}
	return "", ""
}

// scheduler returns the last message of kube-scheduler on the pod.
func scheduler(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fitsNone(first(c.Message, c.Reason))
		}
	}
	return ""
}

// byData returns why a pod cannot run where its data is; false if that is not the reason.
func (p Pod) byData(s Setting) (Answer, bool) {
	pod := p.Pod
	holders := map[string]string{}
	var clusters []string
	for _, claim := range p.Claims {
		cluster := dataIn(claim.Volume)
		if claim.Claim.Status.Phase != corev1.ClaimBound || cluster == "" {
			continue
		}
		if holders[cluster] == "" {
			clusters = append(clusters, cluster)
			holders[cluster] = claim.Name
		}
	}
	switch {
	case len(clusters) == 0:
		return Answer{}, false
	case len(clusters) > 1:
		slices.Sort(clusters)
		return waits("pod %q has no node, for its data is in different clusters: claim %q in %s, claim %q in %s; use claims of one cluster",
			pod.Name, holders[clusters[0]], place(clusters[0]), holders[clusters[1]], place(clusters[1])), true
	}
	cluster := clusters[0]
	if cluster != keys.Home {
		if reason := p.barred(s, cluster); reason != "" {
			return waits("pod %q can run only in %s, where the data of claim %q is, but %s", pod.Name, place(cluster), holders[cluster], reason),
				true
		}
	}
	if message := scheduler(pod); message != "" {
		return waits("pod %q can run only in %s, where the data of claim %q is, and no node of it takes the pod: %s", pod.Name, place(cluster),
			holders[cluster], message), true
	}
	return Answer{}, false
}

// barred returns why no node of a remote cluster accepts a pod, apart from free resources; empty if
// one does.
func (p Pod) barred(s Setting, cluster string) string {
	if s.Namespace != nil && !namespaces.MayUse(s.Namespace, cluster) {
		if s.Namespace.Labels[keys.Offload] != keys.OffloadEnabled {
			return fmt.Sprintf("namespace %q is not open to remote clusters: kubectl label namespace %s %s=%s", s.Namespace.Name, s.Namespace.Name,
				keys.Offload, keys.OffloadEnabled)
		}
		return fmt.Sprintf("namespace %q is not open to it: its annotation %s lists %q; add the cluster there", s.Namespace.Name,
			keys.OffloadClusters, s.Namespace.Annotations[keys.OffloadClusters])
	}
	if s.NodesUnknown {
		return ""
	}
	nodes := s.standing(cluster)
	if len(nodes) == 0 {
		return fmt.Sprintf("no node stands for it: %s",
			first(s.unusable(cluster), "see whether the program for virtual nodes runs (kubectl get pods -n lodestone-system)"))
	}
	var reasons []string
	for i := range nodes {
		reason := p.refuses(&nodes[i])
		if reason == "" {
			return ""
		}
		reasons = append(reasons, reason)
	}
	return reasons[0]
}

// refuses returns why a node accepts no such pod, apart from free resources.
func (p Pod) refuses(node *corev1.Node) string {
	if problem := down(node); problem != "" {
		return fmt.Sprintf("it does not answer: %s", strings.TrimSuffix(problem, "."))
	}
	if node.Spec.Unschedulable {
		return fmt.Sprintf("its node %q is cordoned: kubectl uncordon %s", node.Name, node.Name)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || tolerates(p.Pod, taint) {
			continue
		}
		if taint.Key == keys.RemoteTaint {
			return fmt.Sprintf("the pod does not tolerate taint %s=%s of node %q: pods that are made after their namespace was opened do, so "+
				"delete the pod and let it be made anew", taint.Key, taint.Value, node.Name)
		}
		return fmt.Sprintf("the pod does not tolerate taint %s of node %q", taint.ToString(), node.Name)
	}
	return ""
}

func tolerates(pod *corev1.Pod, taint corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		return t.Operator == corev1.TolerationOpExists || t.Key != "" && t.Value == taint.Value
	})
}

// wanted returns the one remote cluster that a pod's own node selector or affinity asks for, empty
// if it does not ask for just one.
func wanted(pod *corev1.Pod) string {
	if cluster := pod.Spec.NodeSelector[keys.Cluster]; cluster != "" {
		return cluster
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 {
		return ""
	}
	for _, e := range terms[0].MatchExpressions {
		if e.Key == keys.Cluster && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
			return e.Values[0]
		}
	}
	return ""
}

// remote are the reasons of the virtual node's events that explain a pod which
// has not started.
var remote = reasons("RemotePodPending", "RemotePodEnding", "RemotePodLost", "RemotePodGone", "OtherCluster",
	"StaticPod", "DaemonSetPod", "NotScheduled", "NamespaceNotOpen", "ClaimStaysHome", "CreateFailed", "StartFailed", "HoldFailed")

// kubelet are the reasons of a kubelet's events that explain a pod which has not
// started.
var kubelet = reasons("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox", "NetworkNotReady", "Failed")

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// reasons makes a set.
func reasons(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// Reasons of the provisioner's events on claims, by what they mean for the sentence.
var (
	// harmed: the data is in danger.
	harmed = reasons("BackingDeleted", "BackingLost", "BackingMissing", "BackingVolumeDeleted", "BackingVolumeFailed")
	// impaired: the volume cannot be used now.
	impaired = reasons("NewerBacking", "NotRestored", "BackingMisbound", "BackingPending", "BackingNodeGone", "BackingNodeNotReady")
	// locked: it is locked as for a move, and there is none.
	locked = reasons("MoveMarksStay")
	// stuck: nothing happens until somebody acts.
	stuck = reasons("TooLarge", "InvalidClaim", "BackingHasData", "CannotPublish", "VolumeNotStored")
	// slow: it continues by itself, but takes long.
	slow = reasons("WaitingForBacking", "WaitingForSibling", "ClusterNotUsable", "CreateFailed", "RecordFailed",
		"RemoveFailed", "MarkFailed", "RescheduleFailed", "WakeFailed", "UpdateFailed", "ExpandFailed", "ReflectFailed", "FixFailed")
)

// Of returns why a claim waits, or that it does not.
func (c Claim) Of(s Setting) Answer {
	answer := s.withNamespace(c.judge(s), fmt.Sprintf("claim %q", c.Name), c.Claim != nil && c.Claim.DeletionTimestamp != nil)
	answer.Facts = c.facts(s, answer.Sentence)
	return answer.plain()
}

func (c Claim) judge(s Setting) Answer {
	claim := c.Claim
	if claim == nil {
		return waits("claim %q does not exist: create it", c.Name)
	}
	switch {
	case claim.DeletionTimestamp != nil:
		return c.deleting(leaving(s.Namespace))
	case claim.Labels[keys.Moving] == keys.MovingNow && claim.Spec.VolumeName != "" && claim.Status.Phase != corev1.ClaimBound:
		return c.moving(s)
	case claim.Status.Phase == corev1.ClaimLost:
		return c.lost()
	case claim.Status.Phase == corev1.ClaimBound:
		if answer, ok := c.volumeDeleted(); ok {
			return answer
		}
		if impaired := c.impaired(s); impaired != "" {
			return Answer{Sentence: impaired, Waiting: true}
		}
		if why := notExpanded(claim); why != "" {
			return waits("claim %q is bound, but not expanded to %s: %s", c.Name, claim.Spec.Resources.Requests.Storage(), why)
		}
		return fine("claim %q is bound: its data is in %s", c.Name, place(dataIn(c.Volume)))
	case c.Class == nil && claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName != "":
		return waits("claim %q names storage class %q, which does not exist: create the class, or the claim anew with another", c.Name,
			*claim.Spec.StorageClassName)
	case c.Class == nil:
		return waits("claim %q has no storage class, and there is no default class: create the claim anew with one", c.Name)
	case !virtualclass.Is(c.Class):
		if answer, ok := c.ofOthers(s); ok {
			return answer
		}
		return waits("claim %q is of storage class %q, whose provisioner is %q and not Lodestone: kubectl describe pvc says what that one does",
			c.Name, c.Class.Name, c.Class.Provisioner)
	case c.Class.VolumeBindingMode == nil || *c.Class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return waits("claim %q is of storage class %q, which binds at once: create the class anew with volumeBindingMode WaitForFirstConsumer",
			c.Name, c.Class.Name)
	}
	return c.pending(s)
}

// impaired returns what is wrong with the volume of a claim that is bound, in a sentence; empty for
// nothing.
func (c Claim) impaired(s Setting) string {
	trouble := inTrouble(c.Claim)
	if event := latest(c.Events, harmed); event != nil && trouble == "" {
		trouble = event.Message
	}
	if event := recent(s, latest(c.Events, impaired)); event != nil && trouble == "" {
		trouble = event.Message
	}
	if trouble == "" {
		return ""
	}
	return fmt.Sprintf("claim %q is bound, but %s", c.Name, trouble)
}

// moving returns why a claim that is locked by a move has no volume.
func (c Claim) moving(s Setting) Answer {
	if event := latest(c.Events, locked); event != nil && s.Now.Sub(when(*event)) < memory {
		return waits("claim %q has no volume: %s", c.Name, event.Message)
	}
	return waits("claim %q has no volume for a moment, while it is moved, and nothing is deleted: kubectl lodestone move status -n %s says "+
		"how far that is", c.Name, c.Claim.Namespace)
}

// inTrouble returns what is wrong with the volume of a claim, empty for nothing.
func inTrouble(claim *corev1.PersistentVolumeClaim) string {
	for _, condition := range claim.Status.Conditions {
		if condition.Type == keys.VolumeTrouble && condition.Status == corev1.ConditionTrue {
			return condition.Message
		}
	}
	return ""
}

// notExpanded returns why a claim does not get the size that it asks for; empty if it has the size,
// or soon will.
func notExpanded(claim *corev1.PersistentVolumeClaim) string {
	for _, condition := range claim.Status.Conditions {
		if condition.Status == corev1.ConditionTrue &&
			(condition.Type == corev1.PersistentVolumeClaimControllerResizeError || condition.Type == corev1.PersistentVolumeClaimNodeResizeError) {
			return condition.Message
		}
	}
	return ""
}

// deleting returns what a claim that is being deleted waits for; leaving says that its namespace is being deleted, and the pods in
// it by that.
func (c Claim) deleting(leaving bool) Answer {
	var users []string
	for _, pod := range c.Pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			users = append(users, pod.Name)
		}
	}
	switch {
	case len(users) > 0 && leaving:
		return waits("claim %q is being deleted and waits until no pod uses it: %s", c.Name, strings.Join(users, ", "))
	case len(users) > 0:
		return waits("claim %q is being deleted and waits until no pod uses it: delete %s", c.Name, strings.Join(users, ", "))
	}
	return waits("claim %q is being deleted and is held by %s", c.Name, first(holders(c.Claim.Finalizers), "nobody any more"))
}

// pending returns why a virtual claim has no volume.
func (c Claim) pending(s Setting) Answer {
	if event := latest(c.Events, stuck); event != nil && s.Now.Sub(when(*event)) < memory {
		return waits("claim %q cannot be served: %s", c.Name, event.Message)
	}
	node := c.Claim.Annotations[keys.SelectedNode]
	if node == "" {
		if refused, ok := newestRefusal(c.Claim, s.Now); ok {
			return waits("claim %q was refused by %s: %s; that place is tried again after %s", c.Name, place(refused.Cluster), refused.Message,
				refused.Until.Format(time.TimeOnly))
		}
		return c.unscheduled()
	}
	cluster := keys.Home
	if n := s.node(node); n != nil && n.Labels[keys.Cluster] != "" {
		cluster = n.Labels[keys.Cluster]
	}
	if cluster != keys.Home {
		if problem := s.unusable(cluster); problem != "" {
			return waits("claim %q is to be made in %s, which cannot be used now: %s", c.Name, place(cluster), problem)
		}
	}
	if event := latest(c.Events, slow); event != nil && s.Now.Sub(when(*event)) < memory {
		return waits("claim %q is being made in %s: %s", c.Name, place(cluster), event.Message)
	}
	return waits("claim %q is being made in %s, for node %q: this takes seconds; if it lasts, see the log of the provisioner", c.Name,
		place(cluster), node)
}

// memory is how long after an event its message counts as true: the provisioner repeats it every 5
// minutes while it is.
const memory = 6 * time.Minute

// unscheduled returns what a claim waits for as long as no node was chosen for it.
func (c Claim) unscheduled() Answer {
	for _, pod := range c.Pods {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			if c.PodWaits != "" {
				return waits("claim %q waits until its pod has a node: %s", c.Name, c.PodWaits)
			}
			return waits("claim %q waits until its pod %q has a node: kubectl lodestone why pod %s -n %s", c.Name, pod.Name, pod.Name, pod.Namespace)
		}
	}
	return waits("claim %q waits for a pod that uses it: its volume is made where that pod is scheduled, so there is nothing to do but to "+
		"start one", c.Name)
}

// newestRefusal returns the refusal that ends last.
func newestRefusal(claim *corev1.PersistentVolumeClaim, now time.Time) (refusal.Refusal, bool) {
	var newest refusal.Refusal
	for _, r := range refusal.Active(refusal.Decode(claim.Annotations[keys.Refused]), now) {
		if r.Until.After(newest.Until) {
			newest = r
		}
	}
	return newest, newest.Cluster != ""
}

// dataIn returns the cluster that has a volume's data, empty if the data is not confined to one.
func dataIn(volume *corev1.PersistentVolume) string {
	if volume == nil {
		return ""
	}
	if cluster, _, _ := strings.Cut(volume.Annotations[keys.Backing], "/"); cluster != "" {
		return cluster
	}
	return volume.Labels[keys.Cluster]
}

// place names a cluster in a sentence.
func place(cluster string) string {
	switch cluster {
	case keys.Home:
		return "the home cluster"
	case "":
		return "no cluster in particular"
	}
	return fmt.Sprintf("cluster %q", cluster)
}

func waits(format string, args ...any) Answer {
	return Answer{Sentence: fmt.Sprintf(format, args...), Waiting: true}
}

func fine(format string, args ...any) Answer {
	return Answer{Sentence: fmt.Sprintf(format, args...)}
}

// node returns a node by name, nil if it does not exist.
func (s Setting) node(name string) *corev1.Node {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i]
		}
	}
	return nil
}

// standing returns the virtual nodes of a cluster.
func (s Setting) standing(cluster string) []corev1.Node {
	var nodes []corev1.Node
	for _, node := range s.Nodes {
		if node.Labels[keys.Cluster] == cluster {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// cluster returns a RemoteCluster by name, nil if it does not exist.
func (s Setting) cluster(name string) *v1alpha1.RemoteCluster {
	for i := range s.Clusters {
		if s.Clusters[i].Name == name {
			return &s.Clusters[i]
		}
	}
	return nil
}

// unusable returns why no volume can be made in a remote cluster now; empty if one can.
func (s Setting) unusable(name string) string {
	remote := s.cluster(name)
	if remote == nil {
		return fmt.Sprintf("there is no RemoteCluster %q: create it (kubectl lodestone peer)", name)
	}
	ready := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
	switch {
	case ready == nil:
		return "the provisioner has not looked at it yet: see whether it runs (kubectl get pods -n lodestone-system)"
	case ready.Status != metav1.ConditionTrue:
		return ready.Message
	}
	return ""
}

// down returns why a node does not run pods; empty if it does.
func down(node *corev1.Node) string {
	ready := condition(node, corev1.NodeReady)
	if ready != nil && ready.Status == corev1.ConditionTrue {
		return ""
	}
	if remote := condition(node, remoteReady); remote != nil && remote.Status != corev1.ConditionTrue && remote.Message != "" {
		return remote.Message
	}
	if ready == nil {
		return "the node has said nothing yet"
	}
	return cmp.Or(ready.Message, ready.Reason, "the node is not Ready")
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
