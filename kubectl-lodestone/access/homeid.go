package access

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// provisioner is the name of the provisioner's Deployment.
const provisioner = "lodestone-provisioner"

// ProvisionerID returns the ID that the home cluster's provisioner is given by
// flag; empty if it uses the default, or if its Deployment cannot be seen.
func (c *Cluster) ProvisionerID(ctx context.Context, namespace string) (string, error) {
	deployment, err := c.Client.AppsV1().Deployments(namespace).Get(ctx, provisioner, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", c.Explain("get the Deployment of the provisioner", err)
	}
	return clusterID(deployment.Spec.Template.Spec), nil
}

// HomeID returns the ID of the home cluster: the provisioner's, else the default.
func (c *Cluster) HomeID(ctx context.Context, namespace string) (string, error) {
	id, err := c.ProvisionerID(ctx, namespace)
	if err != nil || id != "" {
		return id, err
	}
	uid, err := c.UID(ctx)
	return DefaultID(uid), err
}

// DefaultID returns the ID of a cluster that no flag gives one.
func DefaultID(uid string) string { return uid[:min(8, len(uid))] }

// clusterID returns the ID that a provisioner's flags give home, empty for the
// default.
func clusterID(pod corev1.PodSpec) string {
	for _, container := range pod.Containers {
		args := slices.Concat(container.Command, container.Args)
		for i, arg := range args {
			flag, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if flag != "cluster-id" || !strings.HasPrefix(arg, "-") {
				continue
			}
			if !given && i+1 < len(args) {
				value = args[i+1]
			}
			return value
		}
	}
	return ""
}
