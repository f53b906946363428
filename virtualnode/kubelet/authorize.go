package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// user is who asks.
type user struct {
	name, uid string
	groups    []string
	extra     map[string]authorizationv1.ExtraValue
}

// may asks the home cluster whether a user may do what a request does to a node.
// Any one of the attributes is enough.
func (s *Server) may(ctx context.Context, u *user, attributes []authorizationv1.ResourceAttributes) (bool, error) {
	for _, attribute := range attributes {
		review, err := s.config.Judge.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: u.name, UID: u.uid, Groups: u.groups, Extra: u.extra, ResourceAttributes: &attribute},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("ask whether %s may %s nodes/%s: %w", u.name, attribute.Verb, attribute.Subresource, err)
		}
		if review.Status.Allowed {
			return true, nil
		}
	}
	return false, nil
}

// attributes returns the rights, any one of which a request needs: those that
// kubelet asks for. But to run a command is to create, with whatever HTTP method
// it begins.
func attributes(node, method, path string) []authorizationv1.ResourceAttributes {
	verb := map[string]string{http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create",
		http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[method]
	if verb == "" {
		verb = strings.ToLower(method)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	subresources := []string{"proxy"}
	switch first {
	case "exec", "attach", "portForward":
		verb = "create"
	case "metrics":
		subresources = []string{"metrics"}
	case "stats":
		subresources = []string{"stats"}
	case "logs":
		subresources = []string{"log"}
	case "healthz":
		subresources = []string{"healthz", "proxy"}
	case "pods", "runningpods":
		subresources = []string{"pods", "proxy"}
	}
	var result []authorizationv1.ResourceAttributes
	for _, subresource := range subresources {
		result = append(result, authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes", Subresource: subresource, Name: node, Version: "v1"})
	}
	return result
}
