package story

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// getPod returns a pod of the home cluster.
func (s *story) getPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return s.fabric.Home.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// nodeOf returns the node of a pod that runs and is ready.
func (s *story) nodeOf(ctx context.Context, namespace, name string) (string, error) {
	pod, err := s.getPod(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	if pod.DeletionTimestamp != nil {
		return "", fmt.Errorf("pod %s is being deleted", name)
	}
	if pod.Status.Phase != corev1.PodRunning || conditionOf(pod, corev1.PodReady).Status != corev1.ConditionTrue {
		return "", fmt.Errorf("pod %s is %s and not ready: %s", name, pod.Status.Phase, conditionOf(pod, corev1.PodScheduled).Message)
	}
	return pod.Spec.NodeName, nil
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.PodCondition{}
}

// run checks that pods run and are ready.
func (s *story) run(namespace string, names ...string) probe {
	return func(ctx context.Context) error {
		for _, name := range names {
			if _, err := s.nodeOf(ctx, namespace, name); err != nil {
				return err
			}
		}
		return nil
	}
}

// runIn checks that pods run on nodes of one cluster.
func (s *story) runIn(in where, namespace string, names ...string) probe {
	return func(ctx context.Context) error {
		for _, name := range names {
			node, err := s.nodeOf(ctx, namespace, name)
			if err != nil {
				return err
			}
			object, err := s.fabric.Home.Client().CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			id := object.Labels[keys.Cluster]
			if (in == home) != (id == "") || (in == west) != (id == string(west)) {
				return fmt.Errorf("pod %s runs on node %s, which is not one of %s", name, node, in)
			}
		}
		return nil
	}
}

// waits checks that a pod has no node, and that the scheduler says why: each of the
// reasons is part of what it says.
func (s *story) waits(namespace, name string, reasons ...string) probe {
	return func(ctx context.Context) error {
		pod, err := s.getPod(ctx, namespace, name)
		if err != nil {
			return err
		}
		scheduled := conditionOf(pod, corev1.PodScheduled)
		if pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending || scheduled.Reason != corev1.PodReasonUnschedulable {
			return fmt.Errorf("pod %s is %s on node %q: %s", name, pod.Status.Phase, pod.Spec.NodeName, scheduled.Message)
		}
		for _, reason := range reasons {
			if !strings.Contains(scheduled.Message, reason) {
				return fmt.Errorf("pod %s waits, but not because of %q: %s", name, reason, scheduled.Message)
			}
		}
		return nil
	}
}

// noPods checks that namespace shop of a cluster has no pod with a label.
func (s *story) noPods(in where, selector string) probe {
	return func(ctx context.Context) error {
		list, err := s.cluster(in).Client().CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		return counted("pods", len(list.Items), 0)
	}
}

// all checks several probes.
func all(probes ...probe) probe {
	return func(ctx context.Context) error {
		for _, p := range probes {
			if err := p(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// Columns that show pods: where they are, and why they wait.
const (
	podColumns  = "custom-columns=POD:.metadata.name,PHASE:.status.phase,NODE:.spec.nodeName"
	waitColumns = `custom-columns=POD:.metadata.name,PHASE:.status.phase,WHY:.status.conditions[?(@.type=="PodScheduled")].message`
)
