package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Movable are the kinds whose claims are moved or replicated: see ClaimsOrWorkload.
var Movable = []Kind{Claim, StatefulSet, Deployment, Pod}

// ClaimsOrWorkload returns the workload, or the claims, that arguments name. It is pure.
func ClaimsOrWorkload(cmd *cobra.Command, args []string) (workload Reference, claims []string, err error) {
	references, err := SomeReferences(cmd, args, Movable...)
	if err != nil {
		return Reference{}, nil, err
	}
	for _, reference := range references {
		switch {
		case reference.Kind == "" || reference.Kind == Claim:
			claims = append(claims, reference.Name)
		case len(references) == 1:
			return reference, nil, nil
		default:
			return Reference{}, nil, Misuse("name either claims, or one %s alone", reference.Kind)
		}
	}
	slices.Sort(claims)
	return Reference{}, slices.Compact(claims), nil
}

// NoSubcommand returns an error if the claims that were named, without the flag that says where to, look like a mistyped subcommand.
func NoSubcommand(cmd *cobra.Command, claims []string, flag string) error {
	var commands []string
	for _, inner := range cmd.Commands() {
		commands = append(commands, inner.Name())
	}
	if like := Meant(commands, strings.Join(claims, " ")); len(like) > 0 {
		return Misuse("there is no command %q: did you mean %s? To %s a claim of that name, say where to with %s", cmd.Name()+" "+claims[0],
			Or(like), cmd.Name(), flag)
	}
	return nil
}

// ClaimsOf returns the claims of a workload, group by group: those of each replica of a StatefulSet, or all that a Deployment or pod
// names. verb is what is done with claims. It does not check where their data is: users who may edit a namespace may not read
// volumes, so the provisioner checks that.
func (c *Cluster) ClaimsOf(ctx context.Context, namespace string, workload Reference, verb string) (groups [][]string, err error) {
	switch name := workload.Name; workload.Kind {
	case StatefulSet:
		set, err := c.Client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, c.unreadWorkload(ctx, workload, namespace, err)
		}
		if len(set.Spec.VolumeClaimTemplates) > 0 {
			if groups = claimsOfReplicas(set); groups == nil {
				return nil, c.withoutReplicas(ctx, set, verb)
			}
			return groups, nil
		}
		groups = claimsNamed(set.Spec.Template.Spec)
	case Deployment:
		deployment, err := c.Client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, c.unreadWorkload(ctx, workload, namespace, err)
		}
		groups = claimsNamed(deployment.Spec.Template.Spec)
	default:
		pod, err := c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, c.unreadWorkload(ctx, workload, namespace, err)
		}
		groups = claimsNamed(pod.Spec)
	}
	if groups == nil {
		return nil, Refuse("%s %s/%s uses no claims, so there is nothing to %s: name claims, or a workload that uses some", workload.Kind,
			namespace, workload.Name, verb)
	}
	return groups, nil
}

// unreadWorkload explains why a workload could not be read.
func (c *Cluster) unreadWorkload(ctx context.Context, workload Reference, namespace string, err error) error {
	if apierrors.IsNotFound(err) {
		return c.Missing(ctx, workload.Kind, namespace, workload.Name)
	}
	return c.Explain(fmt.Sprintf("get %s %s/%s", workload.Kind, namespace, workload.Name), err)
}

// claimsNamed returns the claims that a pod names, as one group; nil if it names none.
func claimsNamed(pod corev1.PodSpec) [][]string {
	var group []string
	for _, volume := range pod.Volumes {
		if volume.PersistentVolumeClaim != nil && !slices.Contains(group, volume.PersistentVolumeClaim.ClaimName) {
			group = append(group, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	if group == nil {
		return nil
	}
	return [][]string{group}
}

// claimsOfReplicas returns the names that the claims of each replica of a StatefulSet have, in
// the order of the replicas.
func claimsOfReplicas(set *appsv1.StatefulSet) [][]string {
	var all [][]string
	start := int32(0)
	if set.Spec.Ordinals != nil {
		start = set.Spec.Ordinals.Start
	}
	for i := start; i < start+ptr.Deref(set.Spec.Replicas, 1); i++ {
		var group []string
		for _, template := range set.Spec.VolumeClaimTemplates {
			group = append(group, fmt.Sprintf("%s-%s-%d", template.Name, set.Name, i))
		}
		all = append(all, group)
	}
	return all
}

// withoutReplicas is the error for a StatefulSet that is to have no replicas now: its claims may be there, and nobody has named them.
func (c *Cluster) withoutReplicas(ctx context.Context, set *appsv1.StatefulSet, verb string) error {
	of := fmt.Sprintf("statefulset %s/%s has no replicas", set.Namespace, set.Name)
	names, err := c.Names(ctx, set.Namespace, Claim)
	if err != nil {
		return Refuse("%s: to %s the claims that earlier replicas have left, name them; kubectl get pvc -n %s lists them", of, verb,
			set.Namespace)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !isOfReplica(set, name) })
	if len(names) == 0 {
		return Refuse("%s and has left no claims, so there is nothing to %s", of, verb)
	}
	return Refuse("%s: to %s the claims that earlier replicas have left, name them: %s", of, verb, strings.Join(names, " "))
}

// isOfReplica says whether a claim has the name of one of a replica of a StatefulSet.
func isOfReplica(set *appsv1.StatefulSet, name string) bool {
	return slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(template corev1.PersistentVolumeClaim) bool {
		ordinal, of := strings.CutPrefix(name, template.Name+"-"+set.Name+"-")
		_, err := strconv.ParseUint(ordinal, 10, 31)
		return of && err == nil
	})
}

// Claim returns a claim, or an error if it does not exist.
func (c *Cluster) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := c.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, c.Missing(ctx, Claim, namespace, name)
	case err != nil:
		return nil, c.Explain("get claim "+namespace+"/"+name, err)
	}
	return claim, nil
}

// IsDying says that a namespace is being deleted, or is gone. Of one that the user may not read it is not known.
func (c *Cluster) IsDying(ctx context.Context, name string) bool {
	namespace, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil
}

// IsTransient reports whether the error of a request may pass by itself: there was no answer, or
// the API server cannot answer now.
func IsTransient(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	code := answer.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// Bandwidth reads the flag --bandwidth-limit; nil if none was given.
func Bandwidth(text string) (*resource.Quantity, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no limit is no error
	}
	limit, err := resource.ParseQuantity(text)
	if err != nil || limit.Value() <= 0 {
		return nil, Misuse("--bandwidth-limit %q is not a number of bytes above 0: give one such as 50Mi", text)
	}
	return &limit, nil
}

// ClassesAt lists the real classes of a cluster; of all clusters that are known if it is not given.
func ClassesAt(ctx context.Context, home *Cluster, cluster string) ([]string, error) {
	var names []string
	if cluster == "" || cluster == keys.Home {
		classes, err := home.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range classes.Items {
			if !virtualclass.Is(&classes.Items[i]) {
				names = append(names, classes.Items[i].Name)
			}
		}
	}
	remotes, err := home.Remotes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return names, err
	}
	for _, remote := range remotes.Items {
		for _, class := range remote.Status.StorageClasses {
			if cluster == "" || cluster == remote.Name {
				names = append(names, class.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
