// Package roles compares what Lodestone's roles give with what its programs asked for,
// as the API servers of real control planes noted it.
package roles

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// right is one verb on one resource that an account has by a role.
type right struct {
	account string
	// namespace is where the role gives it; empty for everywhere.
	namespace         string
	verb, group, what string
	names             []string
}

// String is how a right is written in tables and exceptions.
func (r right) String() string {
	text := fmt.Sprintf("%s: %s %s", r.account, r.verb, strings.TrimPrefix(r.group+"/"+r.what, "/"))
	if r.namespace != "" {
		text += " in " + r.namespace
	}
	return text
}

// allows says whether a request needs the right.
func (r right) allows(q fabric.Request) bool {
	if !asked(q) || q.User.Username != "system:serviceaccount:"+r.account || q.Verb != r.verb || q.ObjectRef.APIGroup != r.group || q.What() != r.what {
		return false
	}
	return (r.namespace == "" || r.namespace == q.ObjectRef.Namespace) && (len(r.names) == 0 || slices.Contains(r.names, q.ObjectRef.Name))
}

// asked says whether a program asked, and not a test with its token.
func asked(q fabric.Request) bool {
	return strings.HasPrefix(q.UserAgent, "lodestone-") && q.UserAgent != testbed.UserAgent
}

// rightsIn are the rights in a cluster of Lodestone's accounts, by the roles that
// the manifests made there. Those that are bound in many namespaces count once.
func rightsIn(ctx context.Context, cluster *testbed.Cluster) ([]right, error) {
	api := cluster.Client().RbacV1()
	rules := map[string][]rbacv1.PolicyRule{}
	clusterRoles, err := api.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list cluster roles: %w", err)
	}
	for _, role := range clusterRoles.Items {
		rules[role.Name] = role.Rules
	}
	roles, err := api.Roles("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list roles: %w", err)
	}
	for _, role := range roles.Items {
		rules[role.Namespace+"/"+role.Name] = role.Rules
	}
	found := map[string]right{}
	add := func(role rbacv1.RoleRef, namespace string, subjects []rbacv1.Subject) {
		at := namespace
		name := role.Name
		if role.Kind == "Role" {
			name = namespace + "/" + name
		} else {
			at = ""
		}
		for _, subject := range subjects {
			if !strings.HasPrefix(role.Name, "lodestone-") || subject.Kind != rbacv1.ServiceAccountKind {
				continue
			}
			for _, rule := range rules[name] {
				for _, r := range expand(rule) {
					r.account, r.namespace = subject.Namespace+":"+subject.Name, at
					found[r.String()] = r
				}
			}
		}
	}
	clusterBindings, err := api.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list cluster role bindings: %w", err)
	}
	for _, binding := range clusterBindings.Items {
		add(binding.RoleRef, "", binding.Subjects)
	}
	bindings, err := api.RoleBindings("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list role bindings: %w", err)
	}
	for _, binding := range bindings.Items {
		add(binding.RoleRef, binding.Namespace, binding.Subjects)
	}
	var all []right
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[name])
	}
	return all, nil
}

func expand(rule rbacv1.PolicyRule) []right {
	var all []right
	for _, group := range rule.APIGroups {
		for _, what := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, right{verb: verb, group: group, what: what, names: rule.ResourceNames})
			}
		}
	}
	return all
}
