package fabric

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// NewDaemonSet returns a DaemonSet whose pods tolerate every taint.
func NewDaemonSet(namespace, name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	pod := NewPod(namespace, name)
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}
}

// WithDaemonSetPolicy has the policy that keeps DaemonSets off virtual nodes be there, as
// deploy/components/virtual-node has it or as the webhook in its place, or not, and waits until that is in force at home.
func (f *Fabric) WithDaemonSetPolicy(ctx context.Context, there bool) error {
	set := f.setDaemonSetPolicy
	if f.Webhook != nil {
		set = f.setDaemonSetWebhook
	}
	if err := set(ctx, there); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		made, err := f.Home.Client().AppsV1().DaemonSets(metav1.NamespaceDefault).Create(ctx, NewDaemonSet(metav1.NamespaceDefault, "probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && (made.Spec.Template.Spec.Affinity != nil) == there, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the policy on DaemonSets: %w", err)
	}
	return nil
}

func (f *Fabric) setDaemonSetPolicy(ctx context.Context, there bool) error {
	file := filepath.Join(Root(), "deploy", "components", "virtual-node", "daemonsets.yaml")
	args := []string{"apply", "-f", file}
	if !there {
		args = []string{"delete", "--ignore-not-found", "-f", file}
	}
	_, err := f.Home.Kubectl(ctx, "", args...)
	return err
}

func (f *Fabric) setDaemonSetWebhook(ctx context.Context, there bool) error {
	configurations := f.Home.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	if there {
		if f.daemonSets == nil {
			return nil
		}
		if _, err := configurations.Create(ctx, f.daemonSets, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make the webhook of DaemonSets: %w", err)
		}
		f.daemonSets = nil
		return nil
	}
	found, err := configurations.Get(ctx, "lodestone-daemonsets", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = configurations.Delete(ctx, found.Name, metav1.DeleteOptions{})
	}
	if err != nil {
		return fmt.Errorf("remove the webhook of DaemonSets: %w", err)
	}
	// It has the address at which the webhook is on loopback, which no manifest has.
	found.ResourceVersion, found.UID = "", ""
	f.daemonSets = found
	return nil
}
