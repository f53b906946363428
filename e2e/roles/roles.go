// Package roles compares what Lodestone's roles give with what its programs asked for,
// as the API servers of real control planes noted it.
package roles

import (
	"context"
	"errors"
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
	if !asked(q) || q.User.Username != "system:serviceaccount:"+r.account || q.Verb != r.verb || q.ObjectRef.APIGroup != r.group ||
		q.What() != r.what {
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

// Add adds the excuses that others have to these.
func (e Excuses) Add(others Excuses) Excuses {
	all := maps.Clone(e)
	maps.Copy(all, others)
	return all
}

// Rights are those of accounts in a cluster.
type Rights []right

// Of returns the rights that accounts, given as namespace:name, have in a cluster now;
// those of all of Lodestone's accounts if none is given.
func Of(t *testing.T, cluster *testbed.Cluster, accounts ...string) Rights {
	t.Helper()
	rights, err := rightsIn(t.Context(), cluster)
	require.NoError(t, err)
	rights = slices.DeleteFunc(rights, func(r right) bool { return len(accounts) > 0 && !slices.Contains(accounts, r.account) })
	require.NotEmpty(t, rights)
	return rights
}

// Compare compares the rights that accounts have in a cluster now; see Rights.Compare.
func Compare(t *testing.T, bed *fabric.Fabric, cluster *testbed.Cluster, excused Excuses, refusedToo func(fabric.Request) bool,
	accounts ...string) {
	t.Helper()
	Of(t, cluster, accounts...).Compare(t, bed, cluster, excused, refusedToo)
}

// Compare prints which right was used how often,
// and fails where one was not that is not excused, where an excuse is out of date, and
// where an account of Lodestone asked for what it may not have and refusedToo does not say
// that this is as it should be. The Fabric must have been started with AuditAll.
func (rights Rights) Compare(t *testing.T, bed *fabric.Fabric, cluster *testbed.Cluster, excused Excuses,
	refusedToo func(fabric.Request) bool) {
	t.Helper()
	table, err := rights.compare(bed, cluster, excused, refusedToo)
	t.Log(table)
	require.NoError(t, err)
}

// marker is the account as which the remote agent tries the policy that confines home clusters: that
// it is refused is what the agent wants to see.
const marker = "system:serviceaccount:lodestone-remote:lodestone-marker"

func (rights Rights) compare(bed *fabric.Fabric, cluster *testbed.Cluster, excused Excuses, refusedToo func(fabric.Request) bool) (string,
	error) {
	requests, err := bed.Requests(cluster.Name())
	if err != nil {
		return "", err
	}
	count := func(r right) (used int) {
		for _, q := range requests {
			if !q.Refused() && r.allows(q) {
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
		if q.Refused() && ours(q) && asked(q) && q.User.Username != marker && !refusedToo(q) {
			wrong = append(wrong, fmt.Sprintf("refused: %s %s %s of %s in %q", q.User.Username, q.Verb, q.What(), q.ObjectRef.Name,
				q.ObjectRef.Namespace))
		}
	}
	text := fmt.Sprintf("rights in %s, and how often they were used:\n%s", cluster.Name(), strings.Join(table, "\n"))
	slices.Sort(wrong)
	if wrong = slices.Compact(wrong); len(wrong) > 0 {
		return text, errors.New(strings.Join(wrong, "\n"))
	}
	return text, nil
}

func ours(q fabric.Request) bool {
	return strings.HasPrefix(q.User.Username, "system:serviceaccount:lodestone-")
}
