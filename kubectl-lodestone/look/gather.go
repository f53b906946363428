// Package look reads what package why concludes from, and tells users.
package look

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/why"
)

// Gatherer reads facts with the user's rights. What the user may not read is
// left out: the sentence is then less sure. It is not safe for concurrent use.
type Gatherer struct {
	Home *access.Cluster
	// Lodestone is the namespace in which Lodestone runs.
	Lodestone string

	base    *why.Setting
	classes map[string]*storagev1.StorageClass
}

// read says whether a request was answered; that the user may not read something
// or that it is not there is no error.
func (g *Gatherer) read(doing string, err error) (bool, error) {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, g.Home.Explain(doing, err)
}

// Setting reads what the pods and claims of a namespace have in common.
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
		return why.Pod{}, fmt.Errorf("there is no pod %q in namespace %q: kubectl get pods -n %s lists them", name, namespace, namespace)
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
	// Also of a pod that has a node: its user may ask why it is just there.
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

// Claim reads a claim and what it depends on, but not its pods. One that does
// not exist is a fact, not an error.
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

// events reads the events on an object, those on an earlier one of its name left
// out.
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
