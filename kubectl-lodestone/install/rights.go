package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// certificatesNamespace is where the Job of deploy/components/mtls makes certificates.
const certificatesNamespace = "lodestone-certificates"

// Difference is how a role of an installation, or a binding of one, is not as this plugin would make it.
type Difference struct {
	// Object names it, as ClusterRole lodestone-provisioner.
	Object string
	// Absent says that it is not there, Unused that nothing which is installed needs it.
	Absent, Unused bool
	// Lacks and More are what it does not give and is to give, and what it gives and is not to, in words.
	Lacks, More []string
	// Release is the Helm release that the object is of, as NAME -n NAMESPACE; empty if it is of none.
	Release string
}

// State is what is installed in a cluster.
type State struct {
	// Found says that programs are there, Recorded that install has made them.
	Found, Recorded bool
	// Values are the choices that install has recorded, or else, as far as rights depend on them, those that the objects show.
	Values Values
}

// Installed returns what is installed in a home cluster, or in a remote one. Errors are those of the API, for the caller to explain.
func Installed(ctx context.Context, cluster *cli.Cluster, remote bool) (State, error) {
	last, err := readRecord(ctx, cluster, namespaceOf(remote))
	if err != nil || last.found {
		return State{Found: last.found, Recorded: last.found, Values: last.values}, err
	}
	seen, err := see(ctx, cluster, remote)
	if err != nil || len(seen.deployments) == 0 {
		return State{}, err
	}
	return State{Found: true, Values: seen.values(remote)}, nil
}

// CompareRights compares the roles and bindings of Lodestone in a cluster with those that this plugin has for an installation with such
// values, whoever made it. It returns how many are to be there. Errors are those of the API, for the caller to explain.
func CompareRights(ctx context.Context, cluster *cli.Cluster, values Values, remote bool) (compared int, all []Difference, err error) {
	wanted, err := rightsIn([]Values{values}, remote)
	if err != nil {
		return 0, nil, err
	}
	known, err := rightsIn(everything(), remote)
	if err != nil {
		return 0, nil, err
	}
	t, err := newTarget(cluster, cli.Reporter{})
	if err != nil {
		return 0, nil, err
	}
	for _, r := range slices.SortedFunc(maps.Keys(known), func(a, b reference) int { return strings.Compare(a.String(), b.String()) }) {
		client, err := t.resource(r)
		if err != nil {
			return 0, nil, err
		}
		has, err := client.Get(ctx, r.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			has = nil
		case err != nil:
			return 0, nil, err //nolint:wrapcheck // the caller explains it
		}
		difference, err := compare(r, has, wanted[r])
		if err != nil {
			return 0, nil, err
		}
		if difference != nil {
			all = append(all, *difference)
		}
	}
	return len(wanted), all, nil
}

// everything are installations that together have all roles that there are.
func everything() []Values {
	base := Values{Registry: DefaultRegistry, Tag: "any", VirtualNodes: ptr.To(true), Network: ptr.To(true), Services: ptr.To(true),
		ClusterProfiles: ptr.To(true), OpenShift: ptr.To(true)}
	first, second := base, base
	first.Scheduler, first.Certificates, first.Admission = Extender, ByJob, Policies
	second.Scheduler, second.Certificates, second.Admission, second.KubeScheduler = Second, ByJob, Webhook, "any"
	return []Values{first, second}
}

// rightsIn returns the roles and bindings of installations.
func rightsIn(all []Values, remote bool) (map[reference]*unstructured.Unstructured, error) {
	rights := map[reference]*unstructured.Unstructured{}
	for _, values := range all {
		objects, err := Build(values, remote)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if object.GroupVersionKind().Group == rbacv1.GroupName {
				rights[referenceTo(object)] = object
			}
		}
	}
	return rights, nil
}

// seen are the parts of an installation by which its choices are known, where nobody has recorded them.
type seen struct {
	// deployments are the arguments of all containers, by the name of the Deployment in the namespace of the programs.
	deployments map[string][]string
	// certificates says that a Job makes them, constraints that OpenShift's let movers be what they are, network that its program is
	// there, services that a remote cluster lets home share Services.
	certificates, constraints, network, services bool
}

// see reads these.
func see(ctx context.Context, cluster *cli.Cluster, remote bool) (seen, error) {
	s := seen{deployments: map[string][]string{}}
	list, err := cluster.Client.AppsV1().Deployments(namespaceOf(remote)).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=lodestone"})
	if err != nil {
		return s, err
	}
	for _, deployment := range list.Items {
		s.deployments[deployment.Name] = argumentsOf(deployment)
	}
	t, err := newTarget(cluster, cli.Reporter{})
	if err != nil {
		return s, err
	}
	isThere := func(group schema.GroupVersion, kind, namespace, name string) (bool, error) {
		client, err := t.resource(reference{kind: group.WithKind(kind), namespace: namespace, name: name})
		if notServed(err) {
			return false, nil
		}
		if err == nil {
			_, err = client.Get(ctx, name, metav1.GetOptions{})
		}
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}
	batch, openShift := schema.GroupVersion{Group: "batch", Version: "v1"}, schema.GroupVersion{Group: constraints, Version: "v1"}
	if s.certificates, err = isThere(batch, "CronJob", certificatesNamespace, "lodestone-certificates"); err != nil {
		return s, err
	}
	if s.network, err = isThere(appsv1.SchemeGroupVersion, "DaemonSet", keys.NetworkNamespace, "lodestone-network"); err != nil {
		return s, err
	}
	if s.constraints, err = isThere(openShift, "SecurityContextConstraints", "", "lodestone-mover"); err != nil || !remote {
		return s, err
	}
	ofHome, err := cluster.Client.RbacV1().ClusterRoles().Get(ctx, "lodestone-home", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return s, nil
	}
	s.services = err == nil && slices.ContainsFunc(ofHome.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.APIGroups, serviceExports.Group)
	})
	return s, err
}

func argumentsOf(deployment appsv1.Deployment) (all []string) {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		all = append(all, container.Args...)
	}
	return all
}

// values returns the choices of an installation as far as rights depend on them. It is pure.
func (s seen) values(remote bool) Values {
	has := func(deployment, argument string) bool {
		return slices.ContainsFunc(s.deployments[deployment], func(a string) bool { return strings.HasPrefix(a, argument) })
	}
	isThere := func(deployment string) bool { _, ok := s.deployments[deployment]; return ok }
	v := Values{Registry: DefaultRegistry, Tag: "any", Network: &s.network, OpenShift: &s.constraints}
	if remote {
		v.Services = &s.services
		return v
	}
	v.Scheduler, v.Admission = Extender, Policies
	if isThere("lodestone-scheduler") {
		v.Scheduler, v.KubeScheduler = Second, "any"
	}
	if isThere("lodestone-webhook") {
		v.Admission = Webhook
	}
	if s.certificates {
		v.Certificates = ByJob
	}
	v.VirtualNodes = ptr.To(isThere("lodestone-virtualnode"))
	v.Services = ptr.To(has("lodestone-virtualnode", "--multi-cluster-services"))
	v.ClusterProfiles = ptr.To(has("lodestone-provisioner", "--cluster-profiles-namespace="+inventoryNamespace))
	return v
}

// compare returns how a role or a binding that a cluster has is not as it is to be; nil if it is. has and wanted are nil where there is
// none, and none is to be. It is pure.
func compare(r reference, has, wanted *unstructured.Unstructured) (*Difference, error) {
	if has == nil && wanted == nil {
		return nil, nil //nolint:nilnil // there is no difference
	}
	d := &Difference{Object: r.String(), Absent: has == nil, Unused: wanted == nil}
	if has != nil {
		if name := has.GetAnnotations()["meta.helm.sh/release-name"]; name != "" {
			d.Release = name + " -n " + has.GetAnnotations()["meta.helm.sh/release-namespace"]
		}
	}
	if d.Absent || d.Unused {
		return d, nil
	}
	if strings.HasSuffix(r.kind.Kind, "Binding") {
		given, to, err := binding(has)
		if err != nil {
			return nil, err
		}
		gives, toWhom, err := binding(wanted)
		if err != nil {
			return nil, err
		}
		if given != gives {
			d.Lacks, d.More = append(d.Lacks, gives), append(d.More, given)
		}
		d.Lacks, d.More = append(d.Lacks, beyond(toWhom, to)...), append(d.More, beyond(to, toWhom)...)
	} else {
		given, err := rulesOf(has)
		if err != nil {
			return nil, err
		}
		gives, err := rulesOf(wanted)
		if err != nil {
			return nil, err
		}
		_, lacks := validation.Covers(given, gives)
		_, more := validation.Covers(gives, given)
		d.Lacks, d.More = inWords(lacks), inWords(more)
	}
	if len(d.Lacks) == 0 && len(d.More) == 0 {
		return nil, nil //nolint:nilnil // there is no difference
	}
	return d, nil
}

// beyond returns those of a that are not in b.
func beyond(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// binding returns which role a binding gives, and to whom.
func binding(object *unstructured.Unstructured) (role string, subjects []string, err error) {
	var of rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &of); err != nil {
		return "", nil, fmt.Errorf("read %s: %w", referenceTo(object), err)
	}
	for _, subject := range of.Subjects {
		name := subject.Name
		if subject.Namespace != "" {
			name = subject.Namespace + "/" + name
		}
		subjects = append(subjects, "to "+subject.Kind+" "+name)
	}
	return of.RoleRef.Kind + " " + of.RoleRef.Name, subjects, nil
}

func rulesOf(object *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	var of rbacv1.ClusterRole // a Role has the same rules
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &of); err != nil {
		return nil, fmt.Errorf("read %s: %w", referenceTo(object), err)
	}
	return of.Rules, nil
}

// inWords returns rules of one verb and one resource each as phrases, one for each resource, such as get and list pods. It is pure.
func inWords(rules []rbacv1.PolicyRule) (phrases []string) {
	verbs := map[string][]string{}
	for _, rule := range rules {
		var what string
		for _, resource := range rule.Resources {
			what = resource
			for _, group := range rule.APIGroups {
				if group != "" {
					what += "." + group
				}
			}
		}
		for _, path := range rule.NonResourceURLs {
			what = path
		}
		for _, name := range rule.ResourceNames {
			what += " " + name
		}
		for _, verb := range rule.Verbs {
			if !slices.Contains(verbs[what], verb) {
				verbs[what] = append(verbs[what], verb)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(verbs)) {
		slices.Sort(verbs[what])
		all := verbs[what]
		phrase := all[len(all)-1] + " " + what
		if before := all[:len(all)-1]; len(before) > 0 {
			phrase = strings.Join(before, ", ") + " and " + phrase
		}
		phrases = append(phrases, phrase)
	}
	return phrases
}
