package redfishsim

import (
	"bytes"
	"fmt"
	"net/http"
)

// oldResponse is an answer in HTTP/1.0: its end is the end of the connection (RFC 1945, 7.2.2).
type oldResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (o *oldResponse) Header() http.Header { return o.header }

func (o *oldResponse) WriteHeader(status int) {
	if o.status == 0 {
		o.status = status
	}
}

func (o *oldResponse) Write(p []byte) (int, error) {
	o.WriteHeader(http.StatusOK)
	return o.body.Write(p)
}

// send writes the answer past net/http, which would make it HTTP/1.1.
func (o *oldResponse) send(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // gone already
	}
	defer c.Close()
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.0 %d %s\r\n", o.status, http.StatusText(o.status))
	o.header.Write(&head)
	head.WriteString("\r\n")
	c.Write(append(head.Bytes(), o.body.Bytes()...)) // a client that is gone is its own affair
}
