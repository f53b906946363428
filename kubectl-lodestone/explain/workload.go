package explain

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/why"
)

// Answer reads what there is of an object of one of the kinds, and returns why it waits.
func (g *Gatherer) Answer(ctx context.Context, namespace string, named cli.Reference) (why.Answer, error) {
	if named.Kind == cli.Namespace {
		namespace = named.Name
	}
	setting, err := g.Setting(ctx, namespace)
	if err != nil {
		return why.Answer{}, err
	}
	switch named.Kind {
	case cli.Pod:
		facts, err := g.Pod(ctx, namespace, named.Name)
		if err != nil {
			return why.Answer{}, err
		}
		return facts.Of(setting), nil
	case cli.Claim:
		facts, err := g.ClaimOfUsers(ctx, setting, namespace, named.Name)
		if err != nil {
			return why.Answer{}, err
		}
		if facts.Claim == nil {
			return why.Answer{}, g.Home.Missing(ctx, cli.Claim, namespace, named.Name)
		}
		return facts.Of(setting), nil
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
		if err == nil {
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
	}
	if apierrors.IsNotFound(err) {
		return w, g.Home.Missing(ctx, named.Kind, namespace, named.Name)
	}
	if err != nil {
		return w, g.Home.Explain("get "+string(named.Kind)+" "+namespace+"/"+named.Name, err)
	}
	w.Deleted = object.GetDeletionTimestamp() != nil
	if w.Events, err = g.events(ctx, kind, object); err != nil {
		return w, err
	}
	pods, err := g.Home.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector)})
	if err != nil {
		return w, g.Home.Explain("list pods", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if len(w.Pods) == mostPods || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		facts, err := g.Pod(ctx, namespace, pod.Name)
		if err != nil {
			continue // it is gone meanwhile
		}
		w.Pods = append(w.Pods, facts)
	}
	return w, nil
}
