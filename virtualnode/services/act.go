package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/virtualnode/services/rules"
)

// refusal is the error of what cannot succeed until somebody changes something: a sentence that says what.
type refusal string

func (r refusal) Error() string { return string(r) }

// maxMessage bounds what is said of another cluster's answer.
const maxMessage = 256

// sync brings a name in line in one cluster: the import with what stands for it, and what is said of the cluster's own export.
func (m *member) sync(ctx context.Context, k key) (time.Duration, error) {
	at, _ := m.at(k.namespace)
	if at == nil {
		return 0, nil // once it is known, all that is in it is queued
	}
	now := m.set.observe(k)
	merged := rules.Merge(now.exports)
	err := m.bring(ctx, at, k, now, merged)
	var no refusal
	again := time.Duration(0)
	if errors.As(err, &no) {
		again, err = refusedPeriod, nil
	}
	if err == nil {
		m.report(k, string(no))
	}
	return again, errors.Join(err, m.say(ctx, at, k, now, merged))
}

// bring makes, changes or deletes the import and what stands for it.
func (m *member) bring(ctx context.Context, at *place, k key, now seen, merged rules.Merged) (err error) {
	namespace := m.namespace(k.namespace)
	to := m.set.destination(m.Cluster, namespace)
	imports := m.api.Imports(namespace)
	have := controller.Get[mcs.ServiceImport](at.imports, namespace+"/"+k.name)
	ours := have != nil && rules.Ours(have, m.set.HomeID)
	open := m.set.open(m.Cluster, k.namespace)
	wanted := open && len(merged.Exports) > 0
	// Of what a cluster exports of which nothing is known, the import keeps what it has.
	var lost []string
	if ours {
		for _, one := range have.Status.Clusters {
			if now.unknown[one.Cluster] {
				lost = append(lost, one.Cluster)
			}
		}
	}
	switch {
	case have != nil && !ours && wanted:
		return refusal(fmt.Sprintf("in namespace %s a ServiceImport %s is there that Lodestone did not make, and is left alone: rename "+
			"one of the two", namespace, k.name))
	case !ours && !wanted:
		return nil
	case ours && have.DeletionTimestamp != nil:
		return nil
	case ours && !wanted && (!open || len(lost) == 0):
		// What stands for it goes with it.
		err := imports.Delete(ctx, have.Name, only(have))
		return settle("delete", "ServiceImport", have, err)
	}
	if !ours {
		want := to.Import(k.name, merged)
		if have, err = imports.Create(ctx, want, metav1.CreateOptions{}); err != nil {
			return settle("create", "ServiceImport", want, err)
		}
	}
	derived := controller.Get[corev1.Service](at.services, namespace+"/"+rules.DerivedName(k.name))
	if derived != nil && !rules.Ours(derived, m.set.HomeID) {
		return refusal(fmt.Sprintf("in namespace %s a Service %s is there that Lodestone did not make, and is left alone: rename it", namespace,
			derived.Name))
	}
	if len(lost) == 0 {
		if next, changed := rules.MergeImport(have, to.Import(k.name, merged), derived); changed {
			if have, err = imports.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
				return settle("update", "ServiceImport", next, err)
			}
		}
	}
	return errors.Join(m.bringService(ctx, derived, to.Service(have)), m.bringSlices(ctx, at, to, have, now, merged),
		m.sayOfImport(ctx, have, append(merged.Clusters(), lost...)))
}

// bringService makes or changes the Service that stands for an import. A change of the API server's own queues the name again.
func (m *member) bringService(ctx context.Context, have, want *corev1.Service) error {
	services := m.client.CoreV1().Services(want.Namespace)
	if have == nil {
		_, err := services.Create(ctx, want, metav1.CreateOptions{})
		return settle("create", "Service", want, err)
	}
	next, changed, replace := rules.MergeService(have, want)
	switch {
	case have.DeletionTimestamp != nil || !changed && !replace:
		return nil
	case replace:
		return settle("delete", "Service", have, services.Delete(ctx, have.Name, only(have)))
	}
	_, err := services.Update(ctx, next, metav1.UpdateOptions{})
	return settle("update", "Service", next, err)
}

// bringSlices makes, changes and deletes the EndpointSlices of an import.
func (m *member) bringSlices(ctx context.Context, at *place, to rules.Destination, of *mcs.ServiceImport, now seen,
	merged rules.Merged) error {
	client := m.client.DiscoveryV1().EndpointSlices(of.Namespace)
	wanted := map[string]*discoveryv1.EndpointSlice{}
	for _, export := range merged.Exports {
		made, _ := to.Slices(export, of.Spec.Type)
		for _, slice := range made {
			slice.OwnerReferences = rules.Owners(of)
			wanted[slice.Name] = slice
		}
	}
	var errs []error
	for _, have := range controller.In[discoveryv1.EndpointSlice](at.slices, of.Namespace) {
		if have.Labels[keys.ServiceImport] != of.Name || !rules.Ours(have, m.set.HomeID) || have.DeletionTimestamp != nil {
			continue
		}
		want := wanted[have.Name]
		delete(wanted, have.Name)
		if source := have.Labels[mcs.LabelSourceCluster]; want == nil && now.unknown[source] {
			if want = have; to.Silent(source) {
				want = rules.Silenced(have)
			}
		}
		if want == nil {
			errs = append(errs, settle("delete", "EndpointSlice", have, client.Delete(ctx, have.Name, only(have))))
			continue
		}
		next, changed, replace := rules.MergeSlice(have, want)
		switch {
		case replace: // its deletion queues the name again
			errs = append(errs, settle("delete", "EndpointSlice", have, client.Delete(ctx, have.Name, only(have))))
		case changed:
			_, err := client.Update(ctx, next, metav1.UpdateOptions{})
			errs = append(errs, settle("update", "EndpointSlice", next, err))
		}
	}
	for _, want := range wanted {
		_, err := client.Create(ctx, want, metav1.CreateOptions{})
		errs = append(errs, settle("create", "EndpointSlice", want, err))
	}
	return errors.Join(errs...)
}

// sayOfImport writes the status of an import.
func (m *member) sayOfImport(ctx context.Context, have *mcs.ServiceImport, clusters []string) error {
	next := have.DeepCopy()
	next.Status.EndpointSliceObjects, next.Status.Clusters = mcs.EndpointSliceObjectsPresent, nil
	slices.Sort(clusters)
	for _, cluster := range clusters {
		next.Status.Clusters = append(next.Status.Clusters, mcs.ClusterStatus{Cluster: cluster})
	}
	ready := metav1.Condition{Type: string(mcs.ServiceImportConditionReady), Status: metav1.ConditionTrue,
		Reason: string(mcs.ServiceImportReasonReady), Message: "the Service can be used", ObservedGeneration: have.Generation}
	if have.Spec.Type == mcs.ClusterSetIP && len(have.Spec.IPs) == 0 {
		ready.Status, ready.Reason = metav1.ConditionFalse, string(mcs.ServiceImportReasonPending)
		ready.Message = "its Service " + rules.DerivedName(have.Name) + " has no address yet"
	}
	meta.SetStatusCondition(&next.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(have.Status, next.Status) {
		return nil
	}
	_, err := m.api.Imports(have.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return settle("write the status of", "ServiceImport", have, err)
}

// say writes the conditions of the cluster's own export, if it has one.
func (m *member) say(ctx context.Context, at *place, k key, now seen, merged rules.Merged) error {
	export := m.export(at, k)
	if export == nil || export.Object.DeletionTimestamp != nil {
		return nil
	}
	conditions := merged.Conditions[m.ID]
	if len(conditions) == 0 {
		conditions = []metav1.Condition{rules.Valid(*export)}
	}
	facts := rules.Facts{Export: *export, Valid: conditions[0].Status == metav1.ConditionTrue, Open: m.set.open(m.Cluster, k.namespace),
		HomeNamespace: k.namespace, Clusters: now.clusters, Problems: now.problems, Absent: now.absent}
	if facts.Valid {
		_, facts.LeftOut = m.set.destination(&rules.Cluster{ID: m.set.HomeID}, "").Slices(*export, mcs.ClusterSetIP)
	}
	conditions = append(conditions, rules.Ready(facts))
	next := export.Object.DeepCopy()
	if !slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == string(mcs.ServiceExportConditionConflict) }) {
		meta.RemoveStatusCondition(&next.Status.Conditions, string(mcs.ServiceExportConditionConflict))
	}
	for _, one := range conditions {
		one.ObservedGeneration = next.Generation
		meta.SetStatusCondition(&next.Status.Conditions, one)
	}
	if equality.Semantic.DeepEqual(export.Object.Status, next.Status) {
		return nil
	}
	_, err := m.api.Exports(next.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err := settle("write the status of", "ServiceExport", next, err); err != nil {
		return fmt.Errorf("in cluster %s: %w", m.ID, err)
	}
	return nil
}

// only has a deletion touch no object but this one.
func only(object metav1.Object) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(object.GetUID())}}
}

// settle turns errors that would come again into refusals. What is gone needs no deletion, and no status.
func settle(verb, kind string, object metav1.Object, err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil || apierrors.IsNotFound(err) && verb != "create":
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
	case !errors.As(err, &status):
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return refusal(fmt.Sprintf("%s %s/%s is refused: %s", kind, object.GetNamespace(), object.GetName(),
			sentence.Plain(status.Status().Message, maxMessage)))
	}
	return fmt.Errorf("%s %s %s/%s: %w", verb, kind, object.GetNamespace(), object.GetName(), err)
}
