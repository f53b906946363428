// This file judges why a pod or a claim waits, from what was read of it, its claims and their clusters. It is long because it is a
// list of causes, in the order in which they come before each other: no node, not started, not ready, no volume, being deleted.

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
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Of returns why a pod waits, or that it does not.
func (p Pod) Of(s Setting) Answer {
	answer := s.withNamespace(s.withCopies(p.judge(s), p.Claims...), fmt.Sprintf("pod %q", p.Pod.Name), p.Pod.DeletionTimestamp != nil)
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
		if ended := status.State.Terminated; ended != nil && ended.ExitCode != 0 {
			// Kubelets say so, too, while they wait until they start it again.
			hint := fmt.Sprintf("kubectl logs %s -n %s -c %s", pod.Name, pod.Namespace, status.Name)
			if ended.Reason == "OOMKilled" {
				hint = "it used more memory than it may: raise resources.limits.memory"
			}
			return fmt.Sprintf("container %q ended with code %d (%s): %s", status.Name, ended.ExitCode, ended.Reason, hint)
		}
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
		return fmt.Sprintf("container %q waits (%s): %s%s", status.Name, waiting.Reason,
			cmp.Or(waiting.Message, "kubectl describe pod says more"), hint)
	}
	return ""
}

// endSoon is how long after its time a pod may take to be gone.
const endSoon = 30 * time.Second

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
		if node != nil && down(node) != "" {
			return waits("pod %[1]q is being deleted, but its node %[2]q does not answer: %[3]s; the pod goes once the node is back or, if that is "+
				"off for good, once kubectl delete node %[2]s says so", pod.Name, pod.Spec.NodeName, strings.TrimSuffix(down(node), "."))
		}
		by := pod.DeletionTimestamp.UTC().Format("15:04:05")
		if s.Now.Sub(pod.DeletionTimestamp.Time) > endSoon {
			return waits("pod %q is being deleted: its containers had until %s to end, and its node has not said that they have; kubectl describe "+
				"pod %s -n %s says more", pod.Name, by, pod.Name, pod.Namespace)
		}
		return waits("pod %q is being deleted: its containers have until %s to end", pod.Name, by)
	}
	cluster := pod.Spec.NodeName
	if node != nil && node.Labels[keys.Cluster] != "" {
		cluster = node.Labels[keys.Cluster]
	}
	if event := latest(p.Events, sets.New("OtherCluster")); event != nil {
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
			return waits("pod %q is held back by scheduling gate %q, since claim %q cannot be used: %s", pod.Name, gate, claim, misbound)
		}
		if gate == keys.MovingGate && claim != "" {
			return waits("pod %q is held back by scheduling gate %q, since there is newer data of claim %q than its volume has: kubectl lodestone "+
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
			return waits("pod %q has no node: %s", pod.Name, claim.judge(s).Sentence)
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
				return waits("pod %q has no node yet: %s", pod.Name, answer.Sentence)
			}
			continue
		}
		answer := claim.judge(s)
		_, refused := newestRefusal(claim.Claim, s.Now)
		event := latest(claim.Events, stuck)
		switch {
		case claim.Class == nil && !claim.ClassUnknown, refused, event != nil && s.Now.Sub(when(*event)) < memory,
			claim.Claim.Annotations[keys.SelectedNode] != "":
			return waits("pod %q has no node yet: %s", pod.Name, answer.Sentence)
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
			return fitsNone(cmp.Or(c.Message, c.Reason))
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
		return waits("pod %q has no node, because its data is in different clusters: claim %q in %s, claim %q in %s; use claims of one cluster",
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
	if s.Namespace != nil && !remotecluster.MayUse(s.Namespace, cluster) {
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
			cmp.Or(s.unusable(cluster), "see whether the program for virtual nodes runs (kubectl get pods -n lodestone-system)"))
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
var remote = sets.New("RemotePodPending", "RemotePodEnding", "RemotePodLost", "RemotePodGone", "OtherCluster",
	"StaticPod", "DaemonSetPod", "NotScheduled", "NamespaceNotOpen", "ClaimStaysHome", "CreateFailed", "StartFailed", "HoldFailed")

// kubelet are the reasons of a kubelet's events that explain a pod which has not
// started.
var kubelet = sets.New("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox", "NetworkNotReady", "Failed")

// Reasons of the provisioner's events on claims, by what they mean for the sentence.
var (
	// harmed: the data is in danger.
	harmed = sets.New("BackingDeleted", "BackingLost", "BackingMissing", "BackingVolumeDeleted", "BackingVolumeFailed")
	// impaired: the volume cannot be used now.
	impaired = sets.New("NewerBacking", "NotRestored", "BackingMisbound", "BackingPending", "BackingNodeGone", "BackingNodeNotReady")
	// locked: it is locked as for a move, and there is none.
	locked = sets.New("MoveMarksStay")
	// stuck: nothing happens until somebody acts.
	stuck = sets.New("TooLarge", "InvalidClaim", "BackingHasData", "CannotPublish", "VolumeNotStored")
	// slow: it continues by itself, but takes long.
	slow = sets.New("WaitingForBacking", "WaitingForSibling", "ClusterNotUsable", "CreateFailed", "RecordFailed",
		"RemoveFailed", "MarkFailed", "RescheduleFailed", "WakeFailed", "UpdateFailed", "ExpandFailed", "ReflectFailed", "FixFailed")
)

// Of returns why a claim waits, or that it does not.
func (c Claim) Of(s Setting) Answer {
	answer := s.withNamespace(s.withCopies(c.awaits(s, c.judge(s)), c), fmt.Sprintf("claim %q", c.Name),
		c.Claim != nil && c.Claim.DeletionTimestamp != nil)
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
		return c.bound()
	case c.ClassUnknown:
		if event := recent(s, latest(c.Events, failed)); event != nil {
			return waits("claim %q has no volume yet: %s", c.Name, event.Message)
		}
		return c.pending(s)
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

// bound says where the data of a claim is that is bound and has nothing wrong.
func (c Claim) bound() Answer {
	cluster := dataIn(c.Volume)
	switch {
	case cluster != "":
		return fine("claim %q is bound: its data is in %s", c.Name, place(cluster))
	case c.Volume == nil:
		return fine("claim %q is bound to volume %q: where its data is cannot be said, since you may not read that volume", c.Name,
			c.Claim.Spec.VolumeName)
	case virtualclass.Is(c.Class):
		return fine("claim %q is bound to volume %q, which does not say where its data is", c.Name, c.Volume.Name)
	}
	return fine("claim %q is bound to volume %q, which is not Lodestone's", c.Name, c.Volume.Name)
}

// impaired returns what is wrong with the volume of a claim that is bound, in a sentence; empty for
// nothing.
func (c Claim) impaired(s Setting) string {
	trouble := c.trouble(s)
	if trouble == "" {
		return ""
	}
	return fmt.Sprintf("claim %q is bound, but %s", c.Name, trouble)
}

// trouble returns what is said of the volume of a claim that is bound, if something is wrong with it; empty for nothing.
func (c Claim) trouble(s Setting) string {
	trouble := inTrouble(c.Claim)
	if event := recent(s, latest(c.Events, harmed)); event != nil && trouble == "" {
		trouble = event.Message
	}
	if event := recent(s, latest(c.Events, impaired)); event != nil && trouble == "" {
		trouble = event.Message
	}
	return trouble
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
	by := holders(c.Claim.Finalizers)
	if by == "" {
		return waits("claim %q is being deleted and will be gone in a moment", c.Name)
	}
	return waits("claim %q is being deleted and is held by %s", c.Name, by)
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
	cluster, where := keys.Home, "in "+place(keys.Home)
	switch n := s.node(node); {
	case n == nil && s.NodesUnknown:
		cluster, where = "", fmt.Sprintf("for node %q", node)
	case n != nil && n.Labels[keys.Cluster] != "":
		cluster = n.Labels[keys.Cluster]
		where = "in " + place(cluster)
	}
	if cluster != keys.Home && cluster != "" {
		if problem := s.unusable(cluster); problem != "" {
			return waits("claim %q is to be made in %s, which cannot be used now: %s", c.Name, place(cluster), problem)
		}
	}
	if event := latest(c.Events, slow); event != nil && s.Now.Sub(when(*event)) < memory {
		return waits("claim %q is being made %s: %s", c.Name, where, event.Message)
	}
	if cluster != "" {
		where += fmt.Sprintf(", for node %q", node)
	}
	return waits("claim %q is being made %s: this takes seconds; if it lasts, see the log of the provisioner", c.Name, where)
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
func newestRefusal(claim *corev1.PersistentVolumeClaim, now time.Time) (locality.Refusal, bool) {
	var newest locality.Refusal
	for _, r := range locality.ActiveRefusals(locality.DecodeRefusals(claim.Annotations[keys.Refused]), now) {
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

// unusable returns why no volume can be made in a remote cluster now; empty if one can, or if that is not known.
func (s Setting) unusable(name string) string {
	remote := s.cluster(name)
	if remote == nil {
		if s.ClustersUnknown {
			return ""
		}
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

// probes are the reasons of a kubelet's events that explain a pod which runs and is not ready.
var probes = sets.New("Unhealthy", "ProbeError")

// scheduling are the reasons of events there that the status of the pod tells too, and only as long as
// they are true.
var scheduling = sets.New("FailedScheduling")

// otherCluster is the reason of the event that says that a pod may run in another cluster than its node
// stands for now.
const otherCluster = "OtherCluster"

// notScheduled begins what the virtual node says of a pod for which the remote scheduler has no node.
const notScheduled = "not scheduled in the remote cluster: "

// notMade stands between the cluster and the cause in what the virtual node says of a pod that the cluster has not made.
const notMade = " has not made the pod yet: "

// notBound stands between the real claim and the cause in what the provisioner says of a volume that is not made yet.
const notBound = " is not bound yet: "

// starting returns why a pod has not started that has a node; where says which.
func (p Pod) starting(s Setting, where string) Answer {
	pod, said := p.Pod, p.Pod.Status.Message
	unscheduled := pod.Status.Reason == corev1.PodReasonUnschedulable
	there := recent(s, last(p.Events, func(e corev1.Event) bool { return fromCluster(e) && !scheduling.Has(e.Reason) }))
	event := recent(s, latest(p.Events, remote))
	if said != "" && !unscheduled && (event == nil || !strings.Contains(event.Message, said)) {
		return waits("pod %q is %s: %s", pod.Name, where, said)
	}
	// What the virtual node says only in an event is over once more is said there; but not that the pod
	// may run in another cluster than this one.
	over := there != nil && event != nil && (said == "" || unscheduled) && event.Reason != otherCluster && when(*there).After(when(*event))
	if event != nil && !over {
		if _, cause, found := strings.Cut(event.Message, notMade); found {
			return waits("pod %q is not made %s yet: %s", pod.Name, where, cause)
		}
		return waits("pod %q is %s: %s", pod.Name, where, event.Message)
	}
	for _, claim := range p.Claims {
		if reason := claim.hinders(s); reason != "" {
			return waits("pod %q cannot start %s: %s", pod.Name, where, reason)
		}
	}
	if unscheduled && said != "" {
		return waits("pod %q is %s, where it fits no node: %s", pod.Name, where, fitsNone(strings.TrimPrefix(said, notScheduled)))
	}
	if event := recent(s, latest(p.Events, kubelet)); event != nil {
		return waits("pod %q is %s: %s", pod.Name, where, event.Message)
	}
	switch {
	case there == nil:
		return waits("pod %q is being started %s", pod.Name, where)
	case there.Type == corev1.EventTypeWarning:
		return waits("pod %q is %s: %s", pod.Name, where, text(there))
	}
	return waits("pod %q is being started %s: %s", pod.Name, where, text(there))
}

// notReady returns why a pod runs and is not ready; the condition of the pod says only that.
func (p Pod) notReady(s Setting, condition corev1.PodCondition) string {
	if event := recent(s, last(p.Events, func(e corev1.Event) bool { return probes.Has(e.Reason) })); event != nil {
		return text(event)
	}
	if found := notYet.FindStringSubmatch(condition.Message); found != nil {
		return "the readiness probe of " + strings.Join(strings.Fields(found[2]), ", ") + " has not succeeded yet"
	}
	return cmp.Or(condition.Message, "its readiness probe has not succeeded yet")
}

// hinders returns why no pod can start with a claim, empty if one can.
func (c Claim) hinders(s Setting) string {
	if c.Claim != nil && c.Claim.DeletionTimestamp == nil && c.Claim.Status.Phase == corev1.ClaimBound {
		if _, cause, found := strings.Cut(c.trouble(s), notBound); found {
			return fmt.Sprintf("the volume of its claim %q is not made there yet: %s", c.Name, cause)
		}
		// One that is not expanded can be used.
		return c.impaired(s)
	}
	if answer := c.judge(s); answer.Waiting {
		return answer.Sentence
	}
	return ""
}

// fromCluster reports whether an event came from a remote cluster.
func fromCluster(e corev1.Event) bool { return e.Labels[keys.Cluster] != "" }

// last returns the last event that counts, nil if none does.
func last(events []corev1.Event, counts func(corev1.Event) bool) *corev1.Event {
	var found *corev1.Event
	for i := range events {
		if counts(events[i]) && (found == nil || when(events[i]).After(when(*found))) {
			found = &events[i]
		}
	}
	return found
}

// recent returns an event that counts as true still, nil for another.
func recent(s Setting, event *corev1.Event) *corev1.Event {
	if event == nil || s.Now.Sub(when(*event)) >= memory {
		return nil
	}
	return event
}

// text returns the text of an event, without the cluster that it came from: the sentence names that.
func text(event *corev1.Event) string {
	return cmp.Or(sentence.Unmarked(event.Labels[keys.Cluster], event.Message), event.Reason)
}

// leaving says that a namespace is being deleted, and all that is in it.
func leaving(namespace *corev1.Namespace) bool {
	return namespace != nil && (namespace.DeletionTimestamp != nil || namespace.Status.Phase == corev1.NamespaceTerminating)
}

// withNamespace says of what waits in a namespace that is being deleted that it goes with it, and offers nothing that could not be
// done there any more. deleted says that its own deletion has begun, of which the answer speaks.
func (s Setting) withNamespace(answer Answer, what string, deleted bool) Answer {
	switch {
	case !leaving(s.Namespace) || !answer.Waiting:
		return answer
	case deleted:
		answer.Sentence += fmt.Sprintf("; its namespace %q is being deleted, too", s.Namespace.Name)
		return answer
	}
	return waits("%s goes with namespace %q, which is being deleted: nothing is made in it any more; kubectl lodestone why namespace/%s says "+
		"what it waits for", what, s.Namespace.Name, s.Namespace.Name)
}

// Namespace has the facts about a namespace.
type Namespace struct {
	Namespace *corev1.Namespace
	Claims    []corev1.PersistentVolumeClaim
	Pods      []corev1.Pod
	Moves     []v1alpha1.VolumeMove
}

// mostLeft is how many objects are named that keep a namespace.
const mostLeft = 5

// Of returns what a namespace waits for that is being deleted, or to which clusters it is open.
func (n Namespace) Of(s Setting) Answer {
	s.Namespace = n.Namespace
	name := n.Namespace.Name
	if !leaving(n.Namespace) {
		answer := fine("%s", strings.Join(s.namespaceLine(), ""))
		if n.Namespace.Labels[keys.Offload] != keys.OffloadEnabled {
			answer.Sentence += fmt.Sprintf(" (kubectl label namespace %s %s=%s opens it)", name, keys.Offload, keys.OffloadEnabled)
		}
		return answer.plain()
	}
	var left []string
	for i := range n.Moves {
		move := &n.Moves[i]
		left = append(left, fmt.Sprintf("VolumeMove %s, which goes back or comes to its end%s", move.Name,
			sentence.Prefixed(": ", move.Status.Message)))
	}
	for i := range n.Pods {
		if n.Pods[i].DeletionTimestamp != nil {
			left = append(left, Pod{Pod: &n.Pods[i]}.deleting(s).Sentence)
		}
	}
	for i := range n.Claims {
		if n.Claims[i].DeletionTimestamp != nil {
			left = append(left, Claim{Name: n.Claims[i].Name, Claim: &n.Claims[i], Pods: usersOf(n.Pods, n.Claims[i].Name)}.deleting(true).Sentence)
		}
	}
	facts := slices.Clone(left)
	since := ""
	if at := n.Namespace.DeletionTimestamp; at != nil {
		since = " since " + duration.HumanDuration(s.Now.Sub(at.Time).Round(time.Second))
	}
	for _, condition := range n.Namespace.Status.Conditions {
		if condition.Status == corev1.ConditionTrue {
			facts = append(facts, fmt.Sprintf("condition %s: %s", condition.Type, condition.Message))
		}
	}
	answer := waits("namespace %q is being deleted%s: Kubernetes removes what is in it, which takes a moment", name, since)
	switch more := len(left) - mostLeft; {
	case len(left) > 0:
		answer = waits("namespace %q is being deleted%s and waits for: %s", name, since, strings.Join(left[:min(mostLeft, len(left))], "; "))
		if more > 0 {
			answer.Sentence += fmt.Sprintf("; and %d more", more)
		}
	case len(facts) > 0:
		answer = waits("namespace %q is being deleted%s, and what is left in it is not Lodestone's: %s", name, since, facts[0])
	}
	answer.Facts = facts
	return answer.plain()
}

func usersOf(pods []corev1.Pod, claim string) []corev1.Pod {
	var users []corev1.Pod
	for _, pod := range pods {
		if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim ||
				v.Ephemeral != nil && pod.Name+"-"+v.Name == claim
		}) {
			users = append(users, pod)
		}
	}
	return users
}

// holders says, of the finalizers of a claim that is being deleted, who takes each off and when.
func holders(finalizers []string) string {
	var all []string
	for _, finalizer := range finalizers {
		switch finalizer {
		case keys.MoveFinalizer:
			all = append(all, "a move of it, which ends first (kubectl lodestone move status)")
		case "kubernetes.io/pvc-protection":
			all = append(all, "Kubernetes, until no pod uses it")
		default:
			all = append(all, "finalizer "+finalizer)
		}
	}
	return strings.Join(all, ", ")
}

// lost returns what there is to say of a claim that Kubernetes calls Lost, since its volume is not there.
func (c Claim) lost() Answer {
	claim := c.Claim
	if virtualclass.Is(c.Class) {
		return waits("claim %q is Lost, because somebody deleted its volume %q and took its finalizers off; Lodestone has not deleted the data "+
			"behind it, and does not when the claim is deleted: delete the claim, then an administrator runs kubectl lodestone import pv/VOLUME "+
			"-n %s --class %s --as %s, where VOLUME is what kubectl get pvc -A -l %s=%s shows; if that is in a remote cluster, kubectl "+
			"lodestone import pvc/%s -n %s --class %s --cluster CLUSTER --remote-context CONTEXT", c.Name, claim.Spec.VolumeName,
			claim.Namespace, c.Class.Name, c.Name, keys.ClaimUID, claim.UID, c.Name, claim.Namespace, c.Class.Name)
	}
	return waits("claim %q has lost its volume %q: restore the data from a backup, or delete the claim", c.Name, claim.Spec.VolumeName)
}

// volumeDeleted returns what there is to say of a claim whose volume somebody has deleted, while it is bound; false if nobody has.
func (c Claim) volumeDeleted() (Answer, bool) {
	if c.Volume == nil || c.Volume.DeletionTimestamp == nil || c.Claim.Labels[keys.Moving] == keys.MovingNow {
		return Answer{}, false
	}
	return waits("claim %q is bound, but somebody deleted its volume %q: pods go on with it and the data stays, since Kubernetes keeps the "+
		"volume as long as the claim is there; delete no claim of which you need the data, and copy that to a new claim",
		c.Name, c.Volume.Name), true
}

// failed are the reasons with which provisioners and Kubernetes say on a claim that it gets no volume.
var failed = sets.New("ProvisioningFailed", "FailedBinding")

// ofOthers returns why a claim without a volume waits whose class is not Lodestone's: what its own
// provisioner says, and whether kube-scheduler has chosen a node for it where that can make none.
func (c Claim) ofOthers(s Setting) (Answer, bool) {
	name := fmt.Sprintf("claim %q is of storage class %q, whose provisioner is %q and not Lodestone", c.Name, c.Class.Name,
		c.Class.Provisioner)
	said := ""
	if event := latest(c.Events, failed); event != nil && s.Now.Sub(when(*event)) < memory {
		said = event.Message
	}
	chosen := c.Claim.Annotations[keys.SelectedNode]
	if node := s.node(chosen); node != nil {
		if cluster := node.Labels[keys.Cluster]; cluster != "" && !locality.UsableIn(cluster, c.Claim, c.Volume, c.Class) {
			answer := waits("%s: the scheduler has chosen node %q for it, but in %s no volume is made for such a claim; see that the scheduler "+
				"asks the extender, and delete the pod so that it gets another node", name, chosen, place(cluster))
			if said != "" {
				answer.Sentence += "; the provisioner says: " + said
			}
			return answer, true
		}
	}
	switch {
	case said != "":
		return waits("%s: %s", name, said), true
	case chosen != "":
		return waits("%s: that one makes its volume for node %q; kubectl describe pvc %s -n %s says how far it is", name, chosen, c.Name,
			c.Claim.Namespace), true
	}
	return Answer{}, false
}

// nominated returns that a node was chosen for a pod which is not bound to it yet; false if none was.
func nominated(pod *corev1.Pod) (Answer, bool) {
	node := pod.Status.NominatedNodeName
	if node == "" {
		return Answer{}, false
	}
	return waits("pod %q is to run on node %q, which the scheduler has chosen: it waits until its volumes are made for that node, or until "+
		"pods of lower priority have left it", pod.Name, node), true
}
