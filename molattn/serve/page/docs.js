// The bundled page knows OpenAPI 3.0 alone, and shows all that the document uses of 3.1.
fetch("openapi.json").then((answer) => answer.json()).then((spec) => {
  spec.openapi = "3.0.3";
  SwaggerUIBundle({ spec, dom_id: "#swagger-ui", validatorUrl: null });
});
