// Package explain is the command why: it reads the facts from the home cluster (Gatherer), lets
// package why conclude the sentence, and prints both. Read command.go first.
package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/why"
)

// Gatherer reads facts with the user's rights. It leaves out what the user may not read; the
// sentence is then less certain. It is not safe for concurrent use.
type Gatherer struct {
	Home *cli.Cluster
	// Lodestone is the namespace in which Lodestone runs.
	Lodestone string

	base    *why.Setting
	classes map[string]*storagev1.StorageClass
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
		if ok {
			base.Clusters = remotes.Items
		}
		g.base = &base
	}
	setting := *g.base
	setting.Now = time.Now()
	found, err := g.Home.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	ok, err := g.read("get namespace "+namespace, err)
	if ok {
		setting.Namespace = found
	}
	return setting, err
}

// Pod reads a pod and what it depends on.
func (g *Gatherer) Pod(ctx context.Context, namespace, name string) (why.Pod, error) {
	pod, err := g.Home.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return why.Pod{}, g.Home.Missing(ctx, cli.Pod, namespace, name)
	}
	if err != nil {
		return why.Pod{}, g.Home.Explain("get pod "+namespace+"/"+name, err)
	}
	facts := why.Pod{Pod: pod}
	if facts.Events, err = g.events(ctx, "Pod", pod); err != nil {
		return facts, err
	}
	for _, claim := range claimNames(pod) {
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

// claimNames returns the claims that a pod mounts, those of its generic
// ephemeral volumes included.
func claimNames(pod *corev1.Pod) []string {
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
		if facts.Class, err = g.class(ctx, *claim.Spec.StorageClassName); err != nil {
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
		for _, name := range claimNames(&pod) {
			if name == claim {
				users = append(users, pod)
				break
			}
		}
	}
	return users, nil
}

func (g *Gatherer) class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	if g.classes == nil {
		g.classes = map[string]*storagev1.StorageClass{}
	}
	if known, ok := g.classes[name]; ok {
		return known, nil
	}
	class, err := g.Home.Client.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	ok, err := g.read("get storageclass "+name, err)
	if err != nil {
		return nil, err
	}
	if !ok {
		class = nil
	}
	g.classes[name] = class
	return class, nil
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
// not the right to ask, or there is no extender.
func (g *Gatherer) extender(ctx context.Context, pod *corev1.Pod) why.Said {
	replicas, err := g.Home.Client.CoreV1().Pods(g.Lodestone).List(ctx, metav1.ListOptions{LabelSelector: extenderPods})
	if err != nil {
		return why.Said{}
	}
	var answers []explained
	for _, replica := range replicas.Items {
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
	}
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
