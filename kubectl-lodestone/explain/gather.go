// Package explain is the command why: it reads the facts from the home cluster (Gatherer), lets
// package why conclude the sentence, and prints both. Read command.go first.
package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/why"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Gatherer reads facts with the user's rights. It leaves out what the user may not read; the
// sentence is then less certain. It is not safe for concurrent use.
type Gatherer struct {
	Home *cli.Cluster
	// Lodestone is the namespace in which Lodestone runs.
	Lodestone string

	base    *why.Setting
	classes map[string]readClass
	// replicas are the VolumeReplicas of a namespace, by its name.
	replicas map[string][]v1alpha1.VolumeReplica
	// extenders are the pods of the extender that are asked, nil until they were listed.
	extenders []corev1.Pod
}

// readClass is a storage class as it was read.
type readClass struct {
	class   *storagev1.StorageClass
	unknown bool
}

// read reports whether a request was answered. An object that does not exist, or that the user may
// not read, is no error.
func (g *Gatherer) read(doing string, err error) (bool, error) {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, g.Home.Explain(doing, err)
}

// Setting reads the facts that all pods and claims of a namespace share.
func (g *Gatherer) Setting(ctx context.Context, namespace string) (why.Setting, error) {
	if g.base == nil {
		base := why.Setting{}
		nodes, err := g.Home.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		ok, err := g.read("list nodes", err)
		if err != nil {
			return base, err
		}
		if base.NodesUnknown = !ok; ok {
			base.Nodes = nodes.Items
		}
		remotes, err := g.Home.Remotes.List(ctx, metav1.ListOptions{})
		if ok, err = g.read("list RemoteClusters", err); err != nil {
			return base, err
		}
		if base.ClustersUnknown = !ok; ok {
			base.Clusters = remotes.Items
		}
		g.base = &base
	}
	setting := *g.base
	setting.Now = time.Now()
	found, err := g.Home.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	ok, err := g.read("get namespace "+namespace, err)
	if err != nil {
		return setting, err
	}
	if ok {
		setting.Namespace = found
	}
	setting.Replicas, err = g.replicasIn(ctx, namespace)
	return setting, err
}

// replicasIn reads the VolumeReplicas of a namespace, once.
func (g *Gatherer) replicasIn(ctx context.Context, namespace string) ([]v1alpha1.VolumeReplica, error) {
	if known, ok := g.replicas[namespace]; ok {
		return known, nil
	}
	list, err := g.Home.Moves.Replicas(namespace).List(ctx, metav1.ListOptions{})
	ok, err := g.read("list VolumeReplicas -n "+namespace, err)
	if err != nil {
		return nil, err
	}
	var found []v1alpha1.VolumeReplica
	if ok {
		found = list.Items
	}
	if g.replicas == nil {
		g.replicas = map[string][]v1alpha1.VolumeReplica{}
	}
	g.replicas[namespace] = found
	return found, nil
}

// Pod reads a pod and what it depends on. A pod that does not exist is a fact, not an error: it has no Pod.
func (g *Gatherer) Pod(ctx context.Context, namespace, name string) (why.Pod, error) {
	pod, err := g.Home.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return why.Pod{}, nil
	}
	if err != nil {
		return why.Pod{}, g.Home.Explain("get pod "+namespace+"/"+name, err)
	}
	facts := why.Pod{Pod: pod}
	if facts.Events, err = g.events(ctx, "Pod", pod); err != nil {
		return facts, err
	}
	for _, claim := range ClaimNames(pod) {
		read, err := g.Claim(ctx, namespace, claim)
		if err != nil {
			return facts, err
		}
		facts.Claims = append(facts.Claims, read)
	}
	// This is read for a pod that has a node, too: its user may ask why it was put there.
	facts.Extender = g.extender(ctx, pod)
	return facts, nil
}

// ClaimNames returns the claims that a pod mounts, those of its generic
// ephemeral volumes included.
func ClaimNames(pod *corev1.Pod) []string {
	var names []string
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Name+"-"+volume.Name)
		}
	}
	return names
}

// Claim reads a claim and what it depends on, but not its pods. A claim that does not exist is a
// fact, not an error.
func (g *Gatherer) Claim(ctx context.Context, namespace, name string) (why.Claim, error) {
	facts := why.Claim{Name: name}
	claim, err := g.Home.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return facts, nil
	}
	if err != nil {
		return facts, g.Home.Explain("get persistentvolumeclaim "+namespace+"/"+name, err)
	}
	facts.Claim = claim
	if facts.Events, err = g.events(ctx, "PersistentVolumeClaim", claim); err != nil {
		return facts, err
	}
	if claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName != "" {
		if facts.Class, facts.ClassUnknown, err = g.class(ctx, *claim.Spec.StorageClassName); err != nil {
			return facts, err
		}
	}
	if claim.Spec.VolumeName != "" {
		volume, err := g.Home.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		ok, err := g.read("get persistentvolume "+claim.Spec.VolumeName, err)
		if err != nil {
			return facts, err
		}
		if ok {
			facts.Volume = volume
		}
	}
	return facts, nil
}

// Users reads the pods that use a claim.
func (g *Gatherer) Users(ctx context.Context, namespace, claim string) ([]corev1.Pod, error) {
	all, err := g.Home.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if ok, err := g.read("list pods -n "+namespace, err); !ok {
		return nil, err
	}
	var users []corev1.Pod
	for _, pod := range all.Items {
		for _, name := range ClaimNames(&pod) {
			if name == claim {
				users = append(users, pod)
				break
			}
		}
	}
	return users, nil
}

// class reads a storage class, nil if there is none; unknown says that the user may not read it.
func (g *Gatherer) class(ctx context.Context, name string) (class *storagev1.StorageClass, unknown bool, err error) {
	if g.classes == nil {
		g.classes = map[string]readClass{}
	}
	if known, ok := g.classes[name]; ok {
		return known.class, known.unknown, nil
	}
	found, err := g.Home.Client.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	read := readClass{unknown: apierrors.IsForbidden(err)}
	ok, err := g.read("get storageclass "+name, err)
	if err != nil {
		return nil, false, err
	}
	if ok {
		read.class = found
	}
	g.classes[name] = read
	return read.class, read.unknown, nil
}

// events reads the events on an object, without those on an earlier object of its name.
func (g *Gatherer) events(ctx context.Context, kind string, object metav1.Object) ([]corev1.Event, error) {
	selector := fields.Set{
		"involvedObject.kind": kind, "involvedObject.name": object.GetName(), "involvedObject.uid": string(object.GetUID()),
	}.AsSelector().String()
	list, err := g.Home.Client.CoreV1().Events(object.GetNamespace()).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if ok, err := g.read("list events -n "+object.GetNamespace(), err); !ok {
		return nil, err
	}
	return list.Items, nil
}

// extenderTimeout limits the answer of one replica: the sentence can do without it.
const extenderTimeout = 3 * time.Second

// extenderPods selects the pods that answer /explain, extenderPort is where.
const (
	extenderPods = "app.kubernetes.io/name=lodestone,app.kubernetes.io/component in (extender,scheduler)"
	extenderPort = 8082
)

// explained is the answer of a replica of the extender.
type explained struct {
	UID       string `json:"uid"`
	Decisions []struct {
		Time   time.Time     `json:"time"`
		Verb   string        `json:"verb"`
		Nodes  []why.Verdict `json:"nodes"`
		Scores []why.Mark    `json:"scores"`
	} `json:"decisions"`
}

// extender asks each replica of the extender, through the API server, for its decisions on a pod,
// and returns the latest. Each replica knows only its own decisions. It is no error if the user has
// not the right to ask, or there is no extender. One that does not answer in time is not asked again:
// many API servers reach no pods, and then each pod that is looked at would wait for nothing.
func (g *Gatherer) extender(ctx context.Context, pod *corev1.Pod) why.Said {
	if g.extenders == nil {
		g.extenders = []corev1.Pod{}
		if found, err := g.Home.Client.CoreV1().Pods(g.Lodestone).List(ctx, metav1.ListOptions{LabelSelector: extenderPods}); err == nil {
			g.extenders = append(g.extenders, found.Items...)
		}
	}
	var answers []explained
	silent := map[string]bool{}
	for _, replica := range g.extenders {
		short, cancel := context.WithTimeout(ctx, extenderTimeout)
		body, err := g.Home.Client.CoreV1().RESTClient().Get().
			Namespace(replica.Namespace).Resource("pods").Name(fmt.Sprintf("%s:%d", replica.Name, extenderPort)).
			SubResource("proxy").Suffix("explain").
			Param("namespace", pod.Namespace).Param("pod", pod.Name).DoRaw(short)
		cancel()
		var answer explained
		if err == nil && json.Unmarshal(body, &answer) == nil {
			answers = append(answers, answer)
		}
		silent[replica.Name] = errors.Is(err, context.DeadlineExceeded)
	}
	g.extenders = slices.DeleteFunc(g.extenders, func(replica corev1.Pod) bool { return silent[replica.Name] })
	return lastSaid(string(pod.UID), answers)
}

// lastSaid returns the last decisions on the pod with this UID. Scores from before the last filter
// call are left out: that call left no nodes to choose from.
func lastSaid(uid string, answers []explained) why.Said {
	var said why.Said
	var filtered, scored time.Time
	for _, answer := range answers {
		if answer.UID != uid {
			continue
		}
		for _, decision := range answer.Decisions {
			switch {
			case decision.Verb == "filter" && decision.Time.After(filtered):
				filtered, said.Verdicts = decision.Time, decision.Nodes
			case decision.Verb == "prioritize" && decision.Time.After(scored):
				scored, said.Marks = decision.Time, decision.Scores
			}
		}
	}
	if scored.Before(filtered) {
		said.Marks = nil
	}
	return said
}

// Answer reads what there is of an object of one of the kinds, and returns why it waits.
func (g *Gatherer) Answer(ctx context.Context, namespace string, named cli.Reference) (why.Answer, error) {
	if named.Kind == cli.Pod || named.Kind == cli.Claim {
		answer, found, err := g.Find(ctx, namespace, named)
		if err == nil && !found {
			err = g.Home.Missing(ctx, named.Kind, namespace, named.Name)
		}
		return answer, err
	}
	if named.Kind == cli.Namespace {
		namespace = named.Name
	}
	setting, err := g.Setting(ctx, namespace)
	if err != nil {
		return why.Answer{}, err
	}
	switch named.Kind {
	case cli.Namespace:
		facts, err := g.namespace(ctx, named.Name)
		if err != nil {
			return why.Answer{}, err
		}
		return facts.Of(setting), nil
	default:
		facts, err := g.workload(ctx, namespace, named)
		if err != nil {
			return why.Answer{}, err
		}
		return facts.Of(setting), nil
	}
}

// Find is Answer for a pod or a claim that was seen a moment ago: found is false if it is gone.
func (g *Gatherer) Find(ctx context.Context, namespace string, named cli.Reference) (answer why.Answer, found bool, err error) {
	setting, err := g.Setting(ctx, namespace)
	if err != nil {
		return why.Answer{}, false, err
	}
	if named.Kind == cli.Claim {
		facts, err := g.ClaimOfUsers(ctx, setting, namespace, named.Name)
		if err != nil || facts.Claim == nil {
			return why.Answer{}, false, err
		}
		return facts.Of(setting), true, nil
	}
	facts, err := g.Pod(ctx, namespace, named.Name)
	if err != nil || facts.Pod == nil {
		return why.Answer{}, false, err
	}
	return facts.Of(setting), true, nil
}

// ClaimOfUsers reads a claim, the pods that use it, and why the first of them that has no node has none.
func (g *Gatherer) ClaimOfUsers(ctx context.Context, setting why.Setting, namespace, name string) (why.Claim, error) {
	facts, err := g.Claim(ctx, namespace, name)
	if err != nil || facts.Claim == nil {
		return facts, err
	}
	if facts.Pods, err = g.Users(ctx, namespace, name); err != nil || facts.Claim.Status.Phase != corev1.ClaimPending {
		return facts, err
	}
	for _, pod := range facts.Pods {
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
			continue
		}
		waiting, err := g.Pod(ctx, namespace, pod.Name)
		if err == nil && waiting.Pod != nil {
			facts.PodWaits = waiting.Of(setting).Sentence
		}
		return facts, nil // without the pod the sentence says less
	}
	return facts, nil
}

// namespace reads a namespace, and what is in it that may keep it.
func (g *Gatherer) namespace(ctx context.Context, name string) (why.Namespace, error) {
	found, err := g.Home.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return why.Namespace{}, g.Home.Missing(ctx, cli.Namespace, "", name)
	}
	if err != nil {
		return why.Namespace{}, g.Home.Explain("get namespace "+name, err)
	}
	facts := why.Namespace{Namespace: found}
	claims, err := g.Home.Client.CoreV1().PersistentVolumeClaims(name).List(ctx, metav1.ListOptions{})
	if ok, err := g.read("list persistentvolumeclaims -n "+name, err); err != nil {
		return facts, err
	} else if ok {
		facts.Claims = claims.Items
	}
	pods, err := g.Home.Client.CoreV1().Pods(name).List(ctx, metav1.ListOptions{})
	if ok, err := g.read("list pods -n "+name, err); err != nil {
		return facts, err
	} else if ok {
		facts.Pods = pods.Items
	}
	moves, err := g.Home.Moves.In(name).List(ctx, metav1.ListOptions{})
	if ok, err := g.read("list VolumeMoves -n "+name, err); err != nil {
		return facts, err
	} else if ok {
		facts.Moves = moves.Items
	}
	return facts, nil
}

// mostPods is how many pods of a workload are looked at.
const mostPods = 20

// workload reads what makes pods, and these.
func (g *Gatherer) workload(ctx context.Context, namespace string, named cli.Reference) (why.Workload, error) {
	w := why.Workload{Kind: string(named.Kind), Name: named.Name, Namespace: namespace}
	apps, get := g.Home.Client.AppsV1(), metav1.GetOptions{}
	var object metav1.Object
	var selector *metav1.LabelSelector
	var err error
	var kind string
	switch named.Kind {
	case cli.Deployment:
		d, failed := apps.Deployments(namespace).Get(ctx, named.Name, get)
		object, selector, err, kind = d, d.Spec.Selector, failed, "Deployment"
		w.Wanted, w.Paused = int(ptr.Deref(d.Spec.Replicas, 1)), d.Spec.Paused
		for _, c := range d.Status.Conditions {
			if c.Type == "ReplicaFailure" && c.Status == corev1.ConditionTrue {
				w.Problems = append(w.Problems, c.Message)
			}
		}
	case cli.StatefulSet:
		s, failed := apps.StatefulSets(namespace).Get(ctx, named.Name, get)
		object, selector, err, kind = s, s.Spec.Selector, failed, "StatefulSet"
		w.Wanted = int(ptr.Deref(s.Spec.Replicas, 1))
	case cli.ReplicaSet:
		r, failed := apps.ReplicaSets(namespace).Get(ctx, named.Name, get)
		object, selector, err, kind = r, r.Spec.Selector, failed, "ReplicaSet"
		w.Wanted = int(ptr.Deref(r.Spec.Replicas, 1))
	case cli.DaemonSet:
		d, failed := apps.DaemonSets(namespace).Get(ctx, named.Name, get)
		object, selector, err, kind = d, d.Spec.Selector, failed, "DaemonSet"
		w.Wanted = int(d.Status.DesiredNumberScheduled)
	default:
		j, failed := g.Home.Client.BatchV1().Jobs(namespace).Get(ctx, named.Name, get)
		object, selector, err, kind, w.Wanted = j, j.Spec.Selector, failed, "Job", -1
		ofJob(&w, j)
	}
	if apierrors.IsNotFound(err) {
		return w, g.Home.Missing(ctx, named.Kind, namespace, named.Name)
	}
	if err != nil {
		return w, g.Home.Explain("get "+string(named.Kind)+" "+namespace+"/"+named.Name, err)
	}
	w.Deleted = object.GetDeletionTimestamp() != nil
	if owner := metav1.GetControllerOf(object); owner != nil {
		w.Owner = strings.ToLower(owner.Kind) + "/" + owner.Name
	}
	if w.Events, err = g.events(ctx, kind, object); err != nil {
		return w, err
	}
	pods, err := g.Home.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector)})
	if err != nil {
		return w, g.Home.Explain("list pods", err)
	}
	left := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	slices.SortStableFunc(left, func(a, b corev1.Pod) int { return boolean(PodMayWait(&b)) - boolean(PodMayWait(&a)) })
	w.Has = len(left)
	for i := range left[:min(len(left), mostPods)] {
		facts, err := g.Pod(ctx, namespace, left[i].Name)
		switch {
		case err != nil:
			return w, err
		case facts.Pod == nil: // it is gone meanwhile
			w.Has--
		default:
			w.Pods = append(w.Pods, facts)
		}
	}
	return w, nil
}

func boolean(is bool) int {
	if is {
		return 1
	}
	return 0
}

// ofJob adds to the facts about a Job what its conditions say of its end, and whether it is to make pods.
func ofJob(w *why.Workload, job *batchv1.Job) {
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			w.Done = true
		case c.Type == batchv1.JobFailed:
			w.Failed = cmp.Or(c.Message, c.Reason, "its status says no more")
		}
	}
	w.Suspended = ptr.Deref(job.Spec.Suspend, false)
}
