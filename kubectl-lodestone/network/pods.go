package network

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/pathcheck"
)

const (
	// container is that of a pod, and program what runs in it.
	container, program = "answer", "/lodestone-network"
	// answers is the port at which the program answers.
	answers = 7476
	// lifetime is after how many seconds a pod ends that nobody could delete.
	lifetime = 900
)

// podOf returns the pod that answers in a cluster, home or the name of a remote one.
func podOf(namespace, image, cluster string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "lodestone-network-test-",
			Labels: map[string]string{"app.kubernetes.io/name": "lodestone-network-test"}},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			ActiveDeadlineSeconds:         ptr.To(int64(lifetime)),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: container, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"answer"},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1,
					ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(answers)}}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if cluster != keys.Home {
		pod.Spec.NodeSelector = map[string]string{keys.Cluster: cluster}
		return pod
	}
	ordinary := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist},
		{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet"}},
	}}}}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: ordinary}}
	return pod
}

// stateOf says why a pod is not ready, and whether it is.
func stateOf(pod *corev1.Pod) (state string, ready bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.Status.PodIP != "" {
			return "", true
		}
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			state = c.Message
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "ContainerCreating":
			state = strings.TrimSuffix(s.State.Waiting.Reason+": "+s.State.Waiting.Message, ": ")
		case s.State.Terminated != nil:
			state = strings.TrimSuffix("its container ended: "+s.State.Terminated.Message, ": ")
		}
	}
	if state == "" {
		state = strings.TrimSuffix(string(pod.Status.Phase)+": "+pod.Status.Message, ": ")
	}
	return state, false
}

// check has one pod try the way to another one.
func check(ctx context.Context, home *cli.Cluster, from *corev1.Pod, way Way, wait time.Duration) (results []pathcheck.Result, err error) {
	request := home.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(from.Namespace).Name(from.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Stdout: true, Stderr: true, Command: []string{program, "check",
			"--address=" + way.FromAddress, "--to=" + way.ToAddress, "--wait=" + wait.String()}}, scheme.ParameterCodec)
	config := rest.CopyConfig(home.Config)
	config.Timeout = 0 // it takes as long as packets are awaited
	first, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return nil, fmt.Errorf("run a command in a pod: %w", err)
	}
	second, err := remotecommand.NewSPDYExecutor(config, "POST", request.URL())
	if err != nil {
		return nil, fmt.Errorf("run a command in a pod: %w", err)
	}
	executor, err := remotecommand.NewFallbackExecutor(first, second, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, fmt.Errorf("run a command in a pod: %w", err)
	}
	var out, said bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &said}); err != nil {
		if text := strings.TrimSpace(said.String()); text != "" {
			return nil, fmt.Errorf("pod %s could not try the way (%w): %s", from.Name, err, text)
		}
		return nil, home.Explain(fmt.Sprintf("run a command in pod %s of namespace %q", from.Name, from.Namespace), err)
	}
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		return nil, fmt.Errorf("the command in pod %s did not print what was expected: does its image have the version of this plugin? (%w)",
			from.Name, err)
	}
	return results, nil
}
