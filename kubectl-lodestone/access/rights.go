package access

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Right is one thing that somebody may do.
type Right struct {
	Verb string
	// Group is the API group of Resource; Resource may be "resource/subresource".
	Group, Resource string
	// Namespace is empty for what is cluster-wide; Name is empty for any.
	Namespace, Name string
}

// String returns the right as kubectl auth can-i takes it.
func (r Right) String() string {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	resource = schema.GroupResource{Group: r.Group, Resource: resource}.String()
	if subresource != "" {
		resource += "/" + subresource
	}
	text := r.Verb + " " + resource
	if r.Name != "" {
		text += "/" + r.Name
	}
	if r.Namespace != "" {
		text += " -n " + r.Namespace
	}
	return text
}

// Lacking returns those of the rights that the user does not have.
func (c *Cluster) Lacking(ctx context.Context, rights ...Right) ([]Right, error) {
	var lacking []Right
	for _, right := range rights {
		resource, subresource, _ := strings.Cut(right.Resource, "/")
		review, err := c.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: right.Verb, Group: right.Group, Resource: resource, Subresource: subresource, Namespace: right.Namespace, Name: right.Name,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, c.Explain("ask for your own rights", err)
		}
		if !review.Status.Allowed {
			lacking = append(lacking, right)
		}
	}
	return lacking, nil
}
