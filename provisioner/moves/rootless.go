package moves

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// chooseUsers records as whom the movers of a move without root run: as the pods do that use the claims.
func (c *Controller) chooseUsers(ctx context.Context, r *record.Record) error {
	pods, err := c.Client.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range r.Claims {
		known := &r.Claims[i]
		if movers.IsBlock(known.Volume) {
			return refuse("claim %q is a block volume, and its device is root's: move it without rootless", known.Name)
		}
		user, err := userOf(known.Name, pods.Items)
		if err != nil {
			return err
		}
		// Restic would set what only root may set: everything goes from mover to mover. And a version has what root has written.
		known.User, known.Store, known.Basis = user, nil, nil
	}
	return nil
}

// userOf returns as whom all pods run that use a claim; the error is a refusal.
func userOf(claim string, pods []corev1.Pod) (*movers.User, error) {
	var found *movers.User
	for i := range pods {
		pod := &pods[i]
		if finished(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if !mounts(&pod.Spec, &container, claim) {
				continue
			}
			user := userOfContainer(&pod.Spec, &container)
			switch {
			case user == nil:
				return nil, refuse("container %q of pod %q, which uses claim %q, does not say as which user it runs: have it say so in "+
					"securityContext.runAsUser, or move without rootless", container.Name, pod.Name, claim)
			case user.ID == 0:
				return nil, refuse("container %q of pod %q, which uses claim %q, runs as root: move without rootless", container.Name, pod.Name,
					claim)
			case found != nil && !equality.Semantic.DeepEqual(found, user):
				return nil, refuse("the containers that use claim %q run as several users, or with several groups: move without rootless", claim)
			}
			found = user
		}
	}
	if found == nil {
		return nil, refuse("no pod uses claim %q, so that it is not known whose its files are: move it while its pods are there, or without "+
			"rootless", claim)
	}
	return found, nil
}

// userOfContainer returns as whom a container runs; nil if its pod does not say that.
func userOfContainer(spec *corev1.PodSpec, container *corev1.Container) *movers.User {
	var id *int64
	user := &movers.User{}
	if s := spec.SecurityContext; s != nil {
		id, user.Group, user.Groups, user.FSGroup = s.RunAsUser, s.RunAsGroup, s.SupplementalGroups, s.FSGroup
	}
	if s := container.SecurityContext; s != nil {
		if s.RunAsUser != nil {
			id = s.RunAsUser
		}
		if s.RunAsGroup != nil {
			user.Group = s.RunAsGroup
		}
	}
	if id == nil {
		return nil
	}
	user.ID = *id
	return user
}
