// Package roles compares what Lodestone's roles give with what its programs asked for,
// as the API servers of real control planes noted it.
package roles

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	if q.User.Username != "system:serviceaccount:"+r.account || q.Verb != r.verb || q.ObjectRef.APIGroup != r.group || q.What() != r.what {
		return false
	}
	return (r.namespace == "" || r.namespace == q.ObjectRef.Namespace) && (len(r.names) == 0 || slices.Contains(r.names, q.ObjectRef.Name))
}

// rightsIn are the rights in a cluster of Lodestone's accounts, by the roles that
// the manifests made there. Those that are bound in many namespaces count once.
func rightsIn(t *testing.T, cluster *testbed.Cluster) []right {
	t.Helper()
	api := cluster.Client().RbacV1()
	rules := map[string][]rbacv1.PolicyRule{}
	clusterRoles, err := api.ClusterRoles().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, role := range clusterRoles.Items {
		rules[role.Name] = role.Rules
	}
	roles, err := api.Roles("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
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
	clusterBindings, err := api.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, binding := range clusterBindings.Items {
		add(binding.RoleRef, "", binding.Subjects)
	}
	bindings, err := api.RoleBindings("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, binding := range bindings.Items {
		add(binding.RoleRef, binding.Namespace, binding.Subjects)
	}
	var all []right
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[name])
	}
	return all
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

// Excuses are why rights are there that a test need not use, by the right as it is
// printed.
type Excuses map[string]Excuse

// Excuse is why a right is there. One that is not Sometimes is out of date as soon as the
// right is used.
type Excuse struct {
	why       string
	sometimes bool
}

// Never excuses a right that a test never uses.
func Never(why string) Excuse { return Excuse{why: why} }

// Sometimes excuses a right that a test uses or not: on a slow machine, say.
func Sometimes(why string) Excuse { return Excuse{why: why, sometimes: true} }

// Compare prints which right of Lodestone's accounts in a cluster was used how often,
// and fails where one was not that is not excused, where an excuse is out of date, and
// where an account asked for what it may not have and refusedToo does not say that this
// is as it should be. With accounts, given as namespace:name, only their rights count.
// The Fabric must have been started with AuditAll.
func Compare(t *testing.T, bed *fabric.Fabric, cluster *testbed.Cluster, excused Excuses, refusedToo func(fabric.Request) bool, accounts ...string) {
	t.Helper()
	requests, err := bed.Requests(cluster.Name())
	require.NoError(t, err)
	require.NotEmpty(t, requests)
	rights := slices.DeleteFunc(rightsIn(t, cluster), func(r right) bool { return len(accounts) > 0 && !slices.Contains(accounts, r.account) })
	require.NotEmpty(t, rights)
	count := func(r right) (used int) {
		for _, q := range requests {
			if q.ResponseStatus.Code != 403 && r.allows(q) {
				used++
			}
		}
		return used
	}
	var table, wrong []string
	known := map[string]bool{}
	for _, r := range rights {
		used := count(r)
		name := r.String()
		known[name] = true
		reason, excuse := excused[name]
		if r.group == "snapshot.storage.k8s.io" && used == 0 {
			reason, excuse = Never("(snapshots, which this test bed has none of: e2e/csi)"), true
		}
		watches := r
		watches.verb = "watch"
		if r.verb == "list" && used == 0 && !excuse && count(watches) > 0 {
			reason, excuse = Never("(API servers before Kubernetes 1.34 must be asked for lists)"), true
		}
		table = append(table, strings.TrimRight(fmt.Sprintf("%6d  %s  %s", used, name, reason.why), " "))
		switch {
		case used == 0 && !excuse:
			wrong = append(wrong, "not used: "+name)
		case used > 0 && excuse && !reason.sometimes:
			wrong = append(wrong, "used after all, take it off the exceptions: "+name)
		}
	}
	for name := range excused {
		if !known[name] {
			wrong = append(wrong, "an exception for a right that nobody has: "+name)
		}
	}
	for _, q := range requests {
		if q.ResponseStatus.Code == 403 && ours(q) && !refusedToo(q) {
			wrong = append(wrong, fmt.Sprintf("refused: %s %s %s of %s in %q", q.User.Username, q.Verb, q.What(), q.ObjectRef.Name, q.ObjectRef.Namespace))
		}
	}
	t.Logf("rights in %s, and how often they were used:\n%s", cluster.Name(), strings.Join(table, "\n"))
	slices.Sort(wrong)
	require.Empty(t, slices.Compact(wrong))
}

func ours(q fabric.Request) bool {
	return strings.HasPrefix(q.User.Username, "system:serviceaccount:lodestone-")
}
