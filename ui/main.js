// Both pages get all code as one file, in which this comes last: each page starts what it shows.
import { startReference } from "./docs/docs.js";
import { startConsole } from "./frame/console.js";

if (document.body.classList.contains("reference")) startReference();
else startConsole();
