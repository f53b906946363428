package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// find makes sure that a call is for a home pod of this node, and that the pod of
// its name in the remote cluster is there for that very pod. The error is
// a sentence for the user, the status that of HTTP.
func (e *endpoint) find(ctx context.Context, s *session.Session, c *call) (status int, _ error) {
	pod, err := e.server.config.Pods.Pods(c.namespace).Get(c.pod)
	if err != nil || pod.Spec.NodeName != e.node || c.uid != "" && c.uid != pod.UID {
		return http.StatusNotFound, fmt.Errorf("pod %s/%s is not on node %s", c.namespace, c.pod, e.node)
	}
	if c.container != "" && !slices.Contains(containers(pod), c.container) {
		return http.StatusNotFound, fmt.Errorf("pod %s/%s has no container %s", c.namespace, c.pod, c.container)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	remote, err := s.Client.CoreV1().Pods(s.Namespace(c.namespace)).Get(ctx, c.pod, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return http.StatusNotFound, fmt.Errorf("pod %s/%s is not there in cluster %s yet, or not any more", c.namespace, c.pod, s.Cluster)
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return http.StatusServiceUnavailable, fmt.Errorf("cluster %s does not let this cluster see its pods there: see condition VirtualNode of RemoteCluster %s", s.Cluster, s.Cluster)
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, fmt.Errorf("cluster %s gave no answer within %v", s.Cluster, askTimeout)
	case err != nil:
		return http.StatusServiceUnavailable, fmt.Errorf("cluster %s does not answer: try again when node %s is Ready", s.Cluster, e.node)
	case remote.Labels[keys.HomeID] != s.HomeID || remote.Labels[keys.PodUID] != string(pod.UID):
		return http.StatusNotFound, fmt.Errorf("the pod named %s in namespace %s of cluster %s is not that of pod %s/%s", c.pod, s.Namespace(c.namespace), s.Cluster, c.namespace, c.pod)
	}
	return 0, nil
}

func containers(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	return names
}
